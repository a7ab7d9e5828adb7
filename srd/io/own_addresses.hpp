// Owns a carrier's own addresses: what is for this NIC, and the envelopes of what it sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// Of protocols without further addresses there is one, and nothing is looked up.
template <net::FrameCodec Codec>
class OwnAddresses {
 public:
  [[nodiscard]] static Result<OwnAddresses> make(const Address& own) {
    auto writer = net::EnvelopeWriter::make(own, Codec::kPorts);
    if (!writer) {
      return tl::unexpected(writer.error());
    }
    OwnAddresses made(own, *writer);
    if constexpr (net::HasAliases<Codec>) {
      for (const Address& address : Codec::addresses_of(own)) {
        auto one = net::EnvelopeWriter::make(address, Codec::kPorts);
        if (!one) {
          return tl::unexpected(one.error());
        }
        made.aliases_.push_back({address, *one});
        if (address == own) {
          made.own_number_ = static_cast<std::uint8_t>(made.aliases_.size());
        }
      }
    }
    return made;
  }

  // RxPacket::to; nothing: it is for somebody else.
  [[nodiscard]] std::optional<std::uint8_t> number_of(const Address& to) const {
    if (to == own_) [[likely]] {
      return own_number_;
    }
    if constexpr (net::HasAliases<Codec>) {
      for (std::size_t i = 0; i < aliases_.size(); ++i) {
        if (aliases_[i].address == to) {
          return static_cast<std::uint8_t>(i + 1);
        }
      }
      if (Codec::kPorts.groups && net::is_group(to)) {
        return net::kToGroup;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] const net::EnvelopeWriter& writer([[maybe_unused]] const TxPacket& packet) const {
    if constexpr (net::HasAliases<Codec>) {
      if (packet.source != own_number_ && packet.source != 0 && packet.source <= aliases_.size()) {
        return aliases_[packet.source - std::size_t{1}].writer;
      }
    }
    return writer_;
  }

 private:
  struct Alias {
    Address address;
    net::EnvelopeWriter writer;
  };

  OwnAddresses(const Address& own, const net::EnvelopeWriter& writer)
      : own_(own), writer_(writer) {}

  Address own_;
  std::uint8_t own_number_ = 0;
  net::EnvelopeWriter writer_;
  std::vector<Alias> aliases_;
};

}  // namespace weft::srd
