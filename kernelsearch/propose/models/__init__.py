"""Language models as proposers: the page they read, the call, the check of an answer, repair and spending."""
