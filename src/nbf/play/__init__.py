"""The playground, `nbf play`: a page in the browser where you steer an agent and watch what filters believe.

    problems/     what is played: the map, what may be changed, what the filters are told at each step
    programs.py   a filter's compiled programs, one for each particle count
    carrying.py   a filter's state after a change of the map or of the particle count
    session.py    one episode: steps, changes, going back; a state machine without a network
    messages.py   what a page may ask for
    server.py     the page and its websocket on this machine alone
"""
