"""`wl view`: a dataset in the browser, served to this machine only.

`samples` has the samples of any urls by number, read from a stream until there is an index; `fields` says what a field
is and shows it; `searching`, `statistics`, `problems` and `plans` look at many; `server` answers the page's requests,
and `static/` has the page itself.
"""
