"""The list that the migrations of this folder enter themselves in, in the order of its files."""

from sqlite_utils import Migrations

migrations = Migrations("kernelsearch")
