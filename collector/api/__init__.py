"""The HTTP API and the page: read-only, on loopback, one query layer under all of it.

``endpoints`` is the table of what can be asked, ``parameters`` what each question may be narrowed by, ``access`` who
may ask, ``openapi`` the document made of the same tables, ``server`` the aiohttp application.
"""
