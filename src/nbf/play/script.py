"""An episode as a Python script that repeats what the filters did: the same keys, the same beliefs."""

from __future__ import annotations

from pprint import pformat

from nbf.play.session import Session

TEMPLATE = '''"""An episode of `nbf play`: {title}, {steps}. Every filter sees what it saw, with the same keys."""

from nbf.play.carrying import carried
from nbf.play.problems import PROBLEMS
from nbf.play.problems.problem import filter_key

SEED = {seed}
SETTINGS = {settings}
# Of each step: its settings, what the filters were told, and what was observed.
EPISODE = {episode}

problem, beliefs, last = PROBLEMS["{name}"], {{}}, 0
for t, (now, told, observed) in enumerate(EPISODE):
    environment, policy = problem.at(SETTINGS[now], told)
    for role, tracker in problem.filters(SETTINGS[now]).items():
        key = filter_key(SEED, role, t)
        if t == 0:
            beliefs[role] = tracker.init(filter_key(SEED, role, -1), environment)
        elif now != last:  # another map or particle count
            beliefs[role] = carried(key, tracker, beliefs[role], environment)
        if problem.silent(told):
            continue
        beliefs[role], info = tracker.step(key, beliefs[role], problem.observation(observed), environment, policy)
        print(f"{{t + 1:3}} {{role:8}} ESS {{info.ess:9.3f}}  log p(y) {{info.log_evidence:8.4f}}")
    last = now
'''


def script(session: Session) -> str:
    """Write the script of an episode, up to the step that is looked at.

    Args:
        session: Of the episode.

    Returns:
        Python, which prints the numbers of every filter at every step.
    """
    frames = session.frames[1 : session.cursor + 1]
    different = []
    for frame in frames:
        if frame.used not in different:
            different.append(frame.used)
    episode = [(different.index(frame.used), frame.told, frame.observed) for frame in frames]
    count = len(frames)
    return TEMPLATE.format(
        title=session.problem.title,
        name=session.problem.name,
        steps=f"{count} step{'' if count == 1 else 's'}",
        seed=session.seed,
        settings=pformat(different, width=116, compact=True, sort_dicts=False),
        episode=pformat(episode, width=110, compact=True),
    )
