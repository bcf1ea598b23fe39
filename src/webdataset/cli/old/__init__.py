"""The programs of earlier packages, under their old names and with their old flags.

`making`, `transforming` and `inspecting` each have a table `PROGRAMS` of them; `programs` runs them.
"""
