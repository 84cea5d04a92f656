"""One file per architecture family: dispatch lists in token order."""
