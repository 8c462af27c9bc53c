"""Other tools' files: what they measured comes in, what was found here goes out."""
