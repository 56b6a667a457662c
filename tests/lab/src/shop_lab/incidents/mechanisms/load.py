"""Further customers, who leave by themselves."""

from shop_lab.incidents.catalogue import LoadInjection
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import Target

# The load generator with one persona, whose card is well-formed and of a brand that payment does not accept.
_CARD_TESTERS = """
import sys
from load_generator import personas
from load_generator.__main__ import main
personas._CARD["credit_card_number"] = "3782 822463 10005"
personas.PERSONAS.clear()
personas.PERSONAS[personas.buyer] = 1
sys.exit(main())
"""


class LoadMechanism:
    """Sends customers to the storefront by the load generator."""

    def prepare(self, injection: LoadInjection, target: Target, token: str, seconds: float) -> Inverse:
        return {"token": token, "seconds": seconds}

    def act(self, injection: LoadInjection, target: Target, inverse: Inverse) -> None:
        settings = {
            "RATE": f"{injection.rate:g}",
            "SHAPE": injection.shape,
            "DURATION_SECONDS": f"{inverse['seconds']:.0f}",
            "SEED": inverse["token"],
        }
        if injection.persona:
            target.send_customers({**settings, "THINK_SECONDS": "0.1"}, _CARD_TESTERS)
        else:
            target.send_customers(settings)

    def undo(self, target: Target, inverse: Inverse) -> None:
        target.end_customers(inverse["token"])
