// Owns the answers that processes which attach and donors of taps have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/plant.hpp"

namespace weft::daemon {

// Tells the client why, without waiting; a text that is too long is cut.
inline void refuse(int socket, std::string_view text) {
  attach::RefusedReply reply;
  std::memcpy(reply.text.data(), text.data(), std::min(text.size(), reply.text.size() - 1));
  [[maybe_unused]] const bool sent = attach::send_struct(socket, reply);
}

// Nothing if the name has no end within the array, or something other than zeros follows it.
template <std::size_t N>
std::optional<std::string> name_in(const std::array<char, N>& text) {
  const auto end = std::find(text.begin(), text.end(), '\0');
  if (end == text.end() || std::any_of(end, text.end(), [](char c) { return c != '\0'; })) {
    return std::nullopt;
  }
  return std::string(text.begin(), end);
}

// The NICs of the host that a request names; an empty name is the first host.
inline Result<std::vector<PlantNic*>> nics_named(
    Plant& plant, const std::array<char, attach::kMaxHostName>& host) {
  const auto name = name_in(host);
  if (!name) {
    return fail(ErrorCode::invalid_argument, "the host's name does not end with a zero");
  }
  return plant.nics_of(*name);
}

}  // namespace weft::daemon
