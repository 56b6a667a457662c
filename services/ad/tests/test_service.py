import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ad_service.domain import Inventory
from ad_service.service import AdService
from ad_service.store import parse_ads
from chassis.values.datafile import DataFile
from shop import ad_pb2
from shop.ad_pb2_grpc import AdServiceStub
from shop_kit.failing import rejected_fields
from shop_kit.serving import connect

PAN = {"redirect_url": "/product/pan", "text": "Pans", "contexts": ["kitchen"]}
HOUSE = {"redirect_url": "/", "text": "Free shipping"}

Ads = DataFile[Inventory]


def write(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def ads_file(tmp_path: Path) -> Path:
    return write(tmp_path / "ads.json", PAN, HOUSE)


@pytest.fixture
def ads(ads_file: Path) -> Ads:
    return DataFile(ads_file, parse_ads)


@pytest.fixture
async def stub(ads: Ads) -> AsyncIterator[AdServiceStub]:
    async with connect(AdService(ads)) as channel:
        yield AdServiceStub(channel)


async def texts(stub: AdServiceStub, *keys: str) -> list[str]:
    response = await stub.GetAds(ad_pb2.AdRequest(context_keys=keys))
    return [ad.text for ad in response.ads]


async def test_an_ad_has_its_text_and_its_url(stub: AdServiceStub) -> None:
    response = await stub.GetAds(ad_pb2.AdRequest(context_keys=["Kitchen"]))
    assert list(response.ads) == [ad_pb2.Ad(redirect_url="/product/pan", text="Pans")]


async def test_more_than_a_hundred_keys_are_an_invalid_argument(stub: AdServiceStub) -> None:
    assert [await texts(stub), await texts(stub, *["kitchen"] * 100)] == [["Free shipping"], ["Pans"]]
    assert await rejected_fields(texts(stub, *["kitchen"] * 101)) == ["context_keys"]


async def test_a_changed_file_is_served_without_a_restart(stub: AdServiceStub, ads: Ads, ads_file: Path) -> None:
    write(ads_file, PAN | {"text": "Better pans"}, HOUSE)
    ads.refresh()
    assert await texts(stub, "kitchen") == ["Better pans"]
