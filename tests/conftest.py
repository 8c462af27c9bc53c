"""One hypothesis profile for the whole suite: no deadline, because machines differ, and no files left behind."""

from hypothesis import settings

settings.register_profile("kernelsearch", deadline=None, database=None)
settings.load_profile("kernelsearch")
