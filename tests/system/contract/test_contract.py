"""The documented contract, restated: names, types and field numbers that clients outside this repository depend on.

Files that the documents do not mention, those of later services, are held to the common structure only.
"""

from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

PROTOS = Path(__file__).parents[3] / "protos" / "shop"
DOCUMENTED_FILES = {
    "ad", "address", "cart", "checkout", "currency", "email", "empty", "money", "order", "payment",
    "product_catalog", "recommendation", "shipping",
}  # fmt: skip

MESSAGES = {
    "Money": "currency_code string 1, units int64 2, nanos int32 3",
    "CartItem": "product_id string 1, quantity int32 2",
    "Cart": "user_id string 1, items CartItem* 2",
    "Product": "id string 1, name string 2, description string 3, picture string 4, price_usd Money 5, "
    "categories string* 6",
    "Address": "street_address string 1, city string 2, state string 3, country string 4, zip_code int32 5",
    "CreditCardInfo": "credit_card_number string 1, credit_card_cvv int32 2, "
    "credit_card_expiration_year int32 3, credit_card_expiration_month int32 4",
    "OrderItem": "item CartItem 1, cost Money 2",
    "OrderResult": "order_id string 1, shipping_tracking_id string 2, shipping_cost Money 3, "
    "shipping_address Address 4, items OrderItem* 5",
    "Ad": "redirect_url string 1, text string 2",
    "Empty": "",
    "AddItemRequest": "user_id string 1, item CartItem 2",
    "GetCartRequest": "user_id string 1",
    "EmptyCartRequest": "user_id string 1",
    "ListRecommendationsRequest": "user_id string 1, product_ids string* 2",
    "ListRecommendationsResponse": "product_ids string* 1",
    "ListProductsResponse": "products Product* 1",
    "GetProductRequest": "id string 1",
    "SearchProductsRequest": "query string 1",
    "SearchProductsResponse": "results Product* 1",
    "GetQuoteRequest": "address Address 1, items CartItem* 2",
    "GetQuoteResponse": "cost_usd Money 1",
    "ShipOrderRequest": "address Address 1, items CartItem* 2",
    "ShipOrderResponse": "tracking_id string 1",
    "GetSupportedCurrenciesResponse": "currency_codes string* 1",
    "CurrencyConversionRequest": "from Money 1, to_code string 2",
    "ChargeRequest": "amount Money 1, credit_card CreditCardInfo 2",
    "ChargeResponse": "transaction_id string 1",
    "SendOrderConfirmationRequest": "email string 1, order OrderResult 2",
    "PlaceOrderRequest": "user_id string 1, user_currency string 2, address Address 3, email string 5, "
    "credit_card CreditCardInfo 6",
    "PlaceOrderResponse": "order OrderResult 1",
    "AdRequest": "context_keys string* 1",
    "AdResponse": "ads Ad* 1",
}

METHODS = {
    "CartService": "AddItem(AddItemRequest) Empty, GetCart(GetCartRequest) Cart, EmptyCart(EmptyCartRequest) Empty",
    "RecommendationService": "ListRecommendations(ListRecommendationsRequest) ListRecommendationsResponse",
    "ProductCatalogService": "ListProducts(Empty) ListProductsResponse, GetProduct(GetProductRequest) Product, "
    "SearchProducts(SearchProductsRequest) SearchProductsResponse",
    "ShippingService": "GetQuote(GetQuoteRequest) GetQuoteResponse, ShipOrder(ShipOrderRequest) ShipOrderResponse",
    "CurrencyService": "GetSupportedCurrencies(Empty) GetSupportedCurrenciesResponse, "
    "Convert(CurrencyConversionRequest) Money",
    "PaymentService": "Charge(ChargeRequest) ChargeResponse",
    "EmailService": "SendOrderConfirmation(SendOrderConfirmationRequest) Empty",
    "CheckoutService": "PlaceOrder(PlaceOrderRequest) PlaceOrderResponse",
    "AdService": "GetAds(AdRequest) AdResponse",
}

TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


FILES: dict[str, FileDescriptor] = {
    path.stem: import_module(f"shop.{path.stem}_pb2").DESCRIPTOR for path in sorted(PROTOS.glob("*.proto"))
}
DOCUMENTED = [FILES[name] for name in sorted(DOCUMENTED_FILES)]
MESSAGE_DESCRIPTORS: dict[str, Descriptor] = {
    name: message for file in DOCUMENTED for name, message in file.message_types_by_name.items()
}
SERVICE_DESCRIPTORS: dict[str, ServiceDescriptor] = {
    name: service for file in DOCUMENTED for name, service in file.services_by_name.items()
}


def fields_of(message: Descriptor) -> str:
    """Describe the fields in the notation of this file; `*` marks a repeated one."""
    return ", ".join(
        f"{field.name} {field.message_type.name if field.message_type else TYPES[field.type]}"
        f"{'*' if field.is_repeated else ''} {field.number}"
        for field in message.fields
    )


def test_the_documented_files_define_the_documented_messages_and_services_only() -> None:
    assert MESSAGE_DESCRIPTORS.keys() == MESSAGES.keys()
    assert SERVICE_DESCRIPTORS.keys() == METHODS.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_has_the_documented_fields(name: str) -> None:
    assert fields_of(MESSAGE_DESCRIPTORS[name]) == MESSAGES[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_service_has_the_documented_methods(name: str) -> None:
    service = SERVICE_DESCRIPTORS[name]
    assert service.full_name == f"shop.{name}"
    assert METHODS[name] == ", ".join(
        f"{method.name}({method.input_type.name}) {method.output_type.name}" for method in service.methods
    )


def test_every_other_file_defines_one_service_of_its_own_name() -> None:
    others = FILES.keys() - DOCUMENTED_FILES
    expected = {name: [f"{''.join(word.capitalize() for word in name.split('_'))}Service"] for name in others}
    assert {name: list(FILES[name].services_by_name) for name in others} == expected


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_a_file_is_proto3_in_package_shop_with_unary_methods(file: FileDescriptor) -> None:
    assert file.package == "shop"
    assert 'syntax = "proto3";' in (PROTOS.parent / file.name).read_text()
    methods = [method for service in file.services_by_name.values() for method in service.methods]
    assert not any(method.client_streaming or method.server_streaming for method in methods)


def test_absent_numbers_are_zero_as_proto3_requires() -> None:
    assert not MESSAGE_DESCRIPTORS["Money"].fields_by_name["units"].has_presence


def test_field_4_of_place_order_request_is_reserved() -> None:
    message = DescriptorProto()
    MESSAGE_DESCRIPTORS["PlaceOrderRequest"].CopyToProto(message)
    assert [(reserved.start, reserved.end) for reserved in message.reserved_range] == [(4, 5)]
