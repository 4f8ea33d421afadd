"""The playground, `nbf play`: a page in the browser where you steer an agent and watch what filters believe.

`problems` are what is played; `programs` a filter's compiled programs; `carrying` a filter's state after a change of
the map or of the particle count; `session` one episode, a state machine without a network; `messages` what a page may
ask for, `telling` what it is told; `server` the page and its websocket, on this machine alone.
"""
