"""Adapters to other libraries: their models in, and beliefs out to their planners. Each has its own extra.

| module | extra | what it does |
|---|---|---|
| `gymnasium` | `gymnasium` | turns a Gymnasium environment whose state can be set into a `HostEnvironment` |
| `mujoco` | `mujoco` | turns MuJoCo models into a `HostEnvironment`, by `mujoco.rollout` |
| `gymnax` | `gymnax` | turns a gymnax environment into an `Environment` |
| `openspiel` | `openspiel` | computes the exact posterior at an information state of an OpenSpiel game |
| `openspiel_views` | `openspiel` | turns a sequential OpenSpiel game, as one player sees it, into a `HostEnvironment` |
| `openspiel_episodes` | `openspiel` | makes random games of it a family to train and compare on |
| `openspiel_resampler` | `openspiel` | makes a resampler for OpenSpiel's ISMCTS of any filter of such a game |
| `oh_hell` | `openspiel` | makes one for Oh Hell of beliefs about hands |
| `pomdp_py` | `pomdp-py` | turns a finite pomdp-py model into tables, and any belief into the root of its planners |
| `pomdp_py_belief` | `pomdp-py` | makes a belief of any filter that its planners use for a whole episode |
| `pomdp_py_simulated` | `pomdp-py` | turns any other pomdp-py model into a `HostEnvironment` |

The adapters use only methods of the objects they are given, so none of the packages is imported before it is needed.
"""
