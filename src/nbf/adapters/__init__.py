"""Other libraries' models in, and beliefs out to their planners. Each is an optional extra of its own.

| module | extra | what it does |
|---|---|---|
| `gymnax` | `gymnax` | an `Environment` that steps a gymnax environment |
| `openspiel` | `openspiel` | the exact posterior at an information state of an OpenSpiel game: an oracle |
| `pomdp_py` | `pomdp-py` | a finite pomdp-py model as tables; any belief as the root of a pomdp-py planner |

What comes in is used through its methods alone, so none of the packages is imported before it is needed.
"""
