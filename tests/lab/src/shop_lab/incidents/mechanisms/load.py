"""Further customers, who leave by themselves."""

from shop_lab.incidents.catalogue import LoadInjection
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import CannotAct, Target


class LoadMechanism:
    """Sends customers to the storefront by the load generator."""

    def prepare(self, injection: LoadInjection, target: Target, token: str, seconds: float) -> Inverse:
        if injection.persona:
            raise CannotAct(f"the load generator cannot be limited to customers such as {injection.persona!r}")
        return {"token": token, "seconds": seconds}

    def act(self, injection: LoadInjection, target: Target, inverse: Inverse) -> None:
        settings = {
            "RATE": f"{injection.rate:g}",
            "SHAPE": injection.shape,
            "DURATION_SECONDS": f"{inverse['seconds']:.0f}",
            "SEED": inverse["token"],
        }
        target.send_customers(settings)

    def undo(self, target: Target, inverse: Inverse) -> None:
        target.end_customers(inverse["token"])
