"""The processes that compile, run and judge, and what makes a user's launcher run inside them."""
