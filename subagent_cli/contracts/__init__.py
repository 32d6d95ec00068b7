"""What comes from outside and what is published, as pydantic models.

Import these only where such a document is checked or described: pydantic is too slow to load on the hot
path.
"""
