"""What every configuration must give: the amended protocol is safe and ends, and each rule left out is missed.

The counts are part of the promise: a model that still says "ok" over another number of states is another model.
"""

from typing import NamedTuple


class Expected(NamedTuple):
    """The result of one search, its states and its steps."""

    result: str
    states: int
    steps: int


EXPECTED = {
    "A1 guard: not older than last seen": Expected("VIOLATION I1 process on a device that is Free", 97, 175),
    "A1b same, only two-at-once counts": Expected("VIOLATION I1 two attempts on one device", 1_302, 4_119),
    "A2 same + busy device refuses": Expected("VIOLATION I1 process on a device that is Free", 97, 175),
    "A3 newest epoch pushed to the node at issue": Expected("VIOLATION I1 two attempts on one device", 1_289, 4_131),
    "A3b pushed at issue and at release, disk lost": Expected("VIOLATION I1 two attempts on one device", 4_010, 14_643),
    "A3c pushed at both, agent restart, record gone": Expected(
        "VIOLATION I1 two attempts on one device", 9_463, 38_929
    ),
    "A3d pushed at both, no fault": Expected("ok", 3_745, 17_918),
    "A4 guard asks the Redis lease": Expected("VIOLATION I1 two attempts on one device", 3_787, 13_854),
    "A5 guard asks ledger, nothing recorded": Expected("VIOLATION I1 two attempts on one device", 34_497, 172_266),
    "A5b same, doubled launch": Expected("VIOLATION I4 one attempt runs twice at once", 1_719, 6_100),
    "A6 claim, but an untied report as proof": Expected("VIOLATION I1 process on a device that is Free", 3_395, 11_261),
    "A7 claim+seal, agent sees its children only": Expected(
        "VIOLATION I1 process on a device that is Free", 3_855, 12_848
    ),
    "A8 claim+seal, no device lock": Expected("VIOLATION I1 process on a device that is Free", 3_996, 13_067),
    "A9 free by time alone": Expected("VIOLATION I1 process on a device that is Free", 2_566, 8_155),
    "A10 free because BMC took the command": Expected("VIOLATION I1 process on a device that is Free", 6_032, 20_235),
    "A11 boot/power evidence not tied to a boot": Expected(
        "VIOLATION I1 process on a device that is Free", 2_295, 7_234
    ),
    "A12 override, no device check at start": Expected("VIOLATION I1 two attempts on one device", 74_275, 315_010),
    "A-ok amended, 1 fault": Expected("ok", 325_228, 1_600_604),
    "A-ok amended, 2 faults": Expected("ok", 2_992_470, 15_945_065),
    "A-restart in place allowed, 2 faults": Expected("ok", 3_138_904, 16_550_355),
    "A-mem2 agent keeps no memory of seals, 2 faults": Expected("ok", 2_378_752, 12_722_849),
    "A-pg Postgres loses a commit, two-at-once only": Expected("ok", 730_960, 3_785_164),
    "A-pg2 same, no device check at start": Expected("VIOLATION I1 two attempts on one device", 211_139, 932_282),
    "A-noshort no direct release, 2 faults": Expected("ok", 7_429_926, 43_376_622),
    "A-big amended, 3 faults": Expected("ok", 14_840_545, 84_789_875),
    "A-mem3 no memory of seals, 3 faults": Expected("ok", 11_642_354, 66_514_664),
    "B1 no constraint in Postgres, leases only": Expected("VIOLATION I1 two live grants", 1_889, 5_106),
    "B1b same, no Redis fault, a pause past ttl": Expected("VIOLATION I1 two live grants", 443, 939),
    "B2 epoch drawn before the device is locked": Expected("VIOLATION epoch of the device went back", 1_117, 3_165),
    "B2b same, no lease rule at all": Expected("VIOLATION epoch of the device went back", 953, 2_463),
    "B3 lapse turns the device Suspect": Expected("VIOLATION I7 device Suspect by Redis alone", 125, 206),
    "B3b lapse=Suspect, lease after commit": Expected("VIOLATION I7 device Suspect by Redis alone", 15, 18),
    "B4 the page's lease rules, epoch under lock": Expected("ok", 261_326, 1_454_444),
    "B5 give back without comparing": Expected("ok", 237_672, 1_307_724),
    "B6 ghost lease, before commit": Expected("VIOLATION Redis names a grant that is not live", 8, 9),
    "B6b ghost lease, after commit": Expected("VIOLATION Redis names a grant that is not live", 22, 28),
    "B-gate pending lease first, 3 faults": Expected("ok", 1_776_240, 13_855_542),
    "B-gate0 same, no fault": Expected("ok", 9_261, 42_656),
    "B-ok before commit, 3 faults": Expected("ok", 393_826, 2_349_154),
    "B-ok after commit, 3 faults": Expected("ok", 419_550, 2_932_484),
    "B-big before commit, 5 epochs, 3 faults": Expected("ok", 1_039_888, 6_385_728),
    "C1 facts of an old attempt not dropped": Expected("VIOLATION I5 result of a fenced attempt accepted", 720, 1_496),
    "C2 end not final": Expected("VIOLATION I5 a second end", 85, 128),
    "C3 withdrawn before admitted is ignored": Expected("STUCK (liveness)", 1_209, 3_656),
    "C4 charge ends with the fact, not the release": Expected("VIOLATION I2 live grant without a charge", 56, 78),
    "C5 unproved attempt stays on the queue, limit 1": Expected("STUCK (liveness)", 6_009, 19_384),
    "C6 lost attempt not revoked": Expected("STUCK (liveness)", 13_970, 48_061),
    "C7 end of the job not told to placement": Expected("STUCK (liveness)", 27_348, 107_849),
    "C8 no deadline for an unclaimed grant": Expected("STUCK (liveness)", 6_797, 25_673),
    "C9 seal does not carry the outcome": Expected("STUCK (liveness)", 10_897, 39_738),
    "C-ok amended, endless runs": Expected("ok", 1_128, 3_386),
    "C-ok amended, limit 1, node may stay away": Expected("ok", 28_398, 112_458),
    "C-ok amended, no cancel": Expected("ok", 10_897, 40_228),
    "D1 page: rebind at the acknowledgement": Expected(
        "VIOLATION I1 process on a device its grant does not hold", 7, 6
    ),
    "D2 claim carries the devices, no exchange": Expected("ok", 28, 60),
    "D-ok claim carries the devices, exchange": Expected("ok", 28, 60),
    "D3 move without a hold in the ledger": Expected(
        "VIOLATION I1 managed process through a cluster that is not the owner", 29, 60
    ),
    "D3b no hold and owner not checked at the claim": Expected(
        "VIOLATION I1 managed process through a cluster that is not the owner", 29, 60
    ),
    "D-own hold, owner not checked at the claim": Expected("ok", 45, 95),
    "D3c device seen clear before hold and mark": Expected("VIOLATION I7 device moved under a native process", 32, 63),
    "D4 mark asked but not acknowledged": Expected("VIOLATION I7 device moved under a native process", 30, 60),
    "D5 native process not looked for before the move": Expected(
        "VIOLATION I7 device moved under a native process", 19, 37
    ),
    "D6 no device check at start": Expected("VIOLATION I1 managed and native process on one device", 11, 15),
    "D7 owner facts told apart by value, not version": Expected("STUCK (liveness)", 61, 126),
    "D-ok move amended": Expected("ok", 45, 95),
    "E1 counted from receipt, W = K+Q+D": Expected("VIOLATION I1 freed while a process lives", 286, 562),
    "E1b counted from receipt, W = 2K+Q+D": Expected("ok", 2_371, 6_279),
    "E2 counted from the ask, W = K+D (no drift term)": Expected("VIOLATION I1 freed while a process lives", 27, 38),
    "E3 agent dies, no watchdog": Expected("VIOLATION I1 freed while a process lives", 1_205, 2_626),
    "E-ok from the ask, W = K+Q+D": Expected("ok", 2_379, 6_353),
    "E-ok same, agent may die, hardware watchdog": Expected("ok", 4_758, 14_825),
    "F1 a gang is revoked part by part": Expected(
        "VIOLATION I3 a part may start and another of its gang is not held", 7, 7
    ),
    "F2 the seal of one node frees the gang": Expected("VIOLATION I1 process on a device that is Free", 5_178, 21_446),
    "F3 parts are issued one by one": Expected("STUCK (liveness)", 3_961, 15_560),
    "F4 the end of one part is not the end of all": Expected("STUCK (liveness)", 2_400, 10_116),
    "F5 the end of one boot frees the gang": Expected("VIOLATION I1 process on a device that is Free", 5_178, 21_447),
    "F6 a part that ended well is free by its node's word": Expected(
        "VIOLATION I1 process on a device that is Free", 843, 2_381
    ),
    "F-ok gangs of two nodes, no fault, no cancel": Expected("ok", 2_126, 9_032),
    "F-ok gangs of two nodes, 1 fault": Expected("ok", 12_420, 60_476),
    "F-ok gangs of two nodes, 3 faults": Expected("ok", 61_676, 349_842),
    "F-ok a part that ended well goes alone, no fault, no cancel": Expected("ok", 9_177, 37_882),
    "F-ok a part that ended well goes alone, 1 fault": Expected("ok", 60_448, 293_380),
    "F-ok a part that ended well goes alone, 3 faults": Expected("ok", 359_836, 1_997_486),
    "S1 lines exclude each other by name": Expected("VIOLATION I1 two live grants on one slot", 9, 8),
    "S2 a start does not lock every slot that it covers": Expected(
        "VIOLATION I1 two attempts on one slot", 2_356, 6_677
    ),
    "S3 the partition changes without a hold": Expected("VIOLATION I1 a grant of slots that are not there", 27, 36),
    "S4 the agent does not look before it changes": Expected(
        "VIOLATION I7 partition changed under a process", 1_320, 3_354
    ),
    "S5 the hold is dropped before the agent has said so": Expected(
        "VIOLATION I1 a grant of slots that are not there", 81, 140
    ),
    "S-ok one change, 1 fault": Expected("ok", 5_715, 18_505),
    "S-ok one change, no fault": Expected("ok", 3_256, 10_618),
    "S-ok three changes, 3 faults": Expected("ok", 33_804, 122_508),
}

SMALL_STATES = 30_000  # a second or two each: these run with the unit tests
LARGE_STATES = 5_000_000  # minutes and gigabytes each: these run only by name
