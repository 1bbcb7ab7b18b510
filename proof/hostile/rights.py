"""The model of rights of `delegated.py`: what was delegated, and whether it is enough.

It is written from the manual zfs-allow(8), and shares nothing with the program. A grant is (reach, kind, who, names):
reach is "local", "descendent" or None; kind is "user", "group", "everyone", "create" (to makers of datasets below)
or "set". A need is (dataset, subject, permission): subject is "head", "snapshot", or "child", a dataset that is to
be made directly below. Needs are the least that a command must have, so the model errs on the side of the user.
"""

# Names of properties may be typed in other ways.
SHORT = {"compress": "compression", "recsize": "recordsize", "rdonly": "readonly", "refreserv": "refreservation",
         "reserv": "reservation", "volblock": "volblocksize", "referenced": "refer"}
# Settled when a dataset is made, by its maker.
OF_CREATION = {"encryption", "keyformat", "keylocation", "pbkdf2iters", "version", "utf8only", "normalization",
               "casesensitivity", "volblocksize", "volsize"}
NEVER = "never"


def permission_for(prop, value=None):
    """What setting a property takes."""
    prop = prop.lower()
    if prop.startswith("org.cenote:"):
        return NEVER
    if ":" in prop:
        return "userprop"
    prop = SHORT.get(prop.split("@")[0], prop.split("@")[0])
    return NEVER if prop == "keylocation" and value != "prompt" else prop


def above(name):
    """A dataset, and those above it."""
    head = name.split("@")[0].split("#")[0]
    while head:
        yield head
        head = head.rpartition("/")[0]


class Rights:
    def __init__(self):
        self.grants = {}

    def of(self, dataset):
        return self.grants.setdefault(dataset, set())

    def allow(self, dataset, reaches, kind, who, names):
        for reach in reaches:
            for name in names:
                self.of(dataset).add((reach, kind, who, name))

    def unallow(self, dataset, reaches, kind, who, names):
        for grant in list(self.of(dataset)):
            if grant[0] in reaches and grant[1:3] == (kind, who) and (names is None or grant[3] in names):
                self.of(dataset).discard(grant)

    def made(self, dataset, uid):
        """A dataset was made: its maker gets what is promised above it."""
        for parent in list(above(dataset))[1:]:
            for _, kind, _, name in list(self.of(parent)):
                if kind == "create":
                    self.of(dataset).add(("local", "user", uid, name))

    def gone(self, dataset):
        for name in [name for name in self.grants if dataset in above(name)]:
            del self.grants[name]

    def renamed(self, old, new):
        for name in [name for name in self.grants if old in above(name)]:
            self.grants[new + name[len(old):]] = self.grants.pop(name)

    def may(self, uid, gids, need):
        """Whether a user has a permission."""
        dataset, subject, permission = need
        if permission == NEVER:
            return False
        sets, found = set(), False
        mine = lambda kind, who: kind == "everyone" or kind == "user" and who == uid or kind == "group" and who in gids
        places = list(above(dataset))
        if subject == "child":
            for place in places:
                found |= self.heed(place, lambda reach, kind, who: kind == "create", permission, sets)
        reach_here = "local" if subject == "head" else "descendent"
        for place in places:
            found |= self.heed(place, lambda reach, kind, who: reach == reach_here and mine(kind, who), permission, sets)
            # Sets mean what they mean here, and above where somebody was given them.
            growing = True
            while growing:
                before = set(sets)
                for _, kind, who, name in self.of(place):
                    if kind == "set" and who in before:
                        found |= name == permission
                        sets |= {name} if name.startswith("@") else set()
                growing = sets != before
            reach_here = "descendent"
        return found

    def heed(self, place, is_meant, permission, sets):
        given = {name for reach, kind, who, name in self.of(place) if is_meant(reach, kind, who)}
        sets |= {name for name in given if name.startswith("@")}
        return permission in given

    def lacks(self, uid, gids, needs):
        """The first need that is not met."""
        return next((need for need in needs if not self.may(uid, gids, need)), None)
