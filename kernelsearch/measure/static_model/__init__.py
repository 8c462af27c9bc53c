"""The static model: how long a launch would take, from its binary and the target alone."""
