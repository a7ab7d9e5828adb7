// Owns a sender's credits without a sender around them, for the tests of what they allow.
#pragma once

#include "srd/engine/cc/credit_balance.hpp"

namespace weft::srd {

using namespace std::chrono_literals;

inline constexpr Bytes kPacket = 1024;
inline constexpr Bytes kWindow = 160 * kPacket;
inline constexpr Duration kRoundTrip = 10us;  // that a grant takes

// In a network that does not report its losses.
inline CreditBalance balance_of(const UsualOverdraft& usual = {}, Bytes share = kWindow) {
  return CreditBalance{
      {.packet = kPacket, .window = kWindow, .share = share, .first_grant = kRoundTrip}, usual};
}

// Sends whole packets until something holds it back; returns the bytes.
inline Bytes send_all(CreditBalance& balance) {
  Bytes sent = 0;
  while (balance.wants_more() && balance.may_send()) {
    balance.on_sent(kPacket);
    sent += kPacket;
  }
  return sent;
}

}  // namespace weft::srd
