from services.gateway.__main__ import openapi


def test_the_kept_description_of_the_interface_is_up_to_date() -> None:
    assert openapi(check=True) == 0
