"""Search of the clients in the suite of acting replicas for the master of a group."""

from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.route import TopicRouteData


def route_request(topic: str = "T") -> Command:
    """Route request for a name server."""
    return new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))


def address_of(response: Command | str, group: str = "broker") -> str:
    """Address of the broker with id 0, which may be an acting replica.

    Old name servers show no acting replica as id 0: clients then try the lowest id. "" if there is
    no broker.
    """
    if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
        return ""
    for each in TopicRouteData.decode(response.body).broker_datas:
        if each.broker_name == group:
            return each.broker_addrs[min(each.broker_addrs)] if each.broker_addrs else ""
    return ""
