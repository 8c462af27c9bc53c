"""The referee's rules: the gate (what may be compiled) and the judge (what is right); no processes here."""
