"""A second route from the records to the tables: every cell of the documentation computed again.

Written apart from `nbf_paper.records` and `nbf_paper.report`, of which it imports nothing: files are read with `csv`
and `json`, means are those of `statistics`, labels are read back by a list of their own. What both routes agree
on is then no accident of one of them. `nbf-paper audit` is its command, paper/docs/audit.md its page.
"""
