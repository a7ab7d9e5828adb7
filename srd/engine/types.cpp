// Owns the texts of statuses.
#include "srd/engine/types.hpp"

namespace weft::srd {

const char* to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::bad_qpn:
      return "bad_qpn";
    case Status::bad_qkey:
      return "bad_qkey";
    case Status::receiver_not_ready:
      return "receiver_not_ready";
    case Status::length_error:
      return "length_error";
    case Status::bad_key:
      return "bad_key";
    case Status::out_of_bounds:
      return "out_of_bounds";
    case Status::access_denied:
      return "access_denied";
    case Status::responder_busy:
      return "responder_busy";
    case Status::feature_mismatch:
      return "feature_mismatch";
    case Status::unknown_peer:
      return "unknown_peer";
    case Status::flushed:
      return "flushed";
    case Status::peer_restarted:
      return "peer_restarted";
    case Status::unresponsive:
      return "unresponsive";
    case Status::unreachable:
      return "unreachable";
    case Status::local_protection:
      return "local_protection";
  }
  return "unknown";
}

}  // namespace weft::srd
