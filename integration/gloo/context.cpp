// Owns the pairs of a group: Gloo creates one for each other rank, and none for its own.
#include "integration/gloo/transport.hpp"

namespace weft::gloo {

std::unique_ptr<::gloo::transport::Pair>& Context::createPair(int other) {
  auto& place = pairs_.at(static_cast<std::size_t>(other));
  place = std::make_unique<Pair>(*this, other);
  return place;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> Context::createUnboundBuffer(void* data,
                                                                               std::size_t length) {
  return std::make_unique<UnboundBuffer>(shared_from_this(), data, length);
}

// The place of the own rank, and of a rank that Gloo has not connected, is empty.
Pair& Context::pair(int other) {
  const auto index = static_cast<std::size_t>(other);
  if (other < 0 || index >= pairs_.size() || pairs_[index] == nullptr) {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: there is no pair with rank ", other);
  }
  return static_cast<Pair&>(*pairs_[index]);
}

void Context::advance(nccl::Core& core) {
  for (const auto& one : pairs_) {
    if (one != nullptr) {
      static_cast<Pair&>(*one).advance(core);
    }
  }
}

void Context::shut(nccl::Core& core) {
  for (const auto& one : pairs_) {
    if (one != nullptr) {
      static_cast<Pair&>(*one).shut(core);
    }
  }
}

}  // namespace weft::gloo
