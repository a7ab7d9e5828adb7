// Owns the NIC's control path: address handles and the life of queue pairs.
//
// An address handle stands for an address within one protection domain: creating the same one twice
// gives the same number and counts its users. The engine hears of the first and of the last one
// (acquaint()), because a NIC may be told to accept remote writes and reads only from addresses
// that it has handles for.
//
// A queue pair becomes an endpoint of the engine in INIT, takes messages from RTR on, and is closed
// in ERR and RESET. Its object is kept when it is destroyed and used again for the same number,
// because completions that are still in the engine point to it.
#include "emu/nic/nic.hpp"

#include <algorithm>
#include <bit>

#include "srd/base/check.hpp"

namespace weft::nic {

Nic::Nic(const NicConfig& config, Domains& domains, srd::Engine& engine)
    : config_(config),
      domains_(domains),
      engine_(engine),
      qps_(config.qpn_count),
      qp_table_(std::bit_ceil(std::max(config.max_qp, 1U))) {
  WEFT_CHECK(config.qpn_count > 0);
}

Nic::Handles& Nic::handles_of(std::uint32_t pd) {
  if (pd >= handles_of_.size()) {
    handles_of_.resize(pd + 1);
  }
  return handles_of_[pd];
}

Outcome<std::uint32_t> Nic::allocate_pd() { return domains_.allocate(); }

Outcome<void> Nic::free_pd(std::uint32_t pd) { return domains_.free(pd); }

// Counts of users start at 0, whatever region had that index before.
Outcome<srd::RegionKey> Nic::register_memory(const srd::Region& region) {
  const auto key = domains_.register_memory(region);
  if (key) {
    const std::size_t index = domains_.table().index_of(*key);
    region_users_.resize(std::max(region_users_.size(), index + 1));
  }
  return key;
}

Outcome<void> Nic::deregister(srd::RegionKey key) {
  if (const auto gone = domains_.deregister(key); !gone) {
    return gone;
  }
  // The engine looks through all its work for this, so only if some uses the region.
  if (region_users_[domains_.table().index_of(key)] > 0) {
    engine_.revoke([this, key](std::uint64_t cookie) {
      const auto& keys = contexts_[static_cast<std::uint32_t>(cookie)].keys;
      return std::find(keys.begin(), keys.end(), key) != keys.end();
    });
  }
  return {};
}

Outcome<std::uint16_t> Nic::create_ah(std::uint32_t pd, const srd::Address& address) {
  if (!domains_.has(pd)) {
    return refuse(EINVAL);
  }
  Handles& of_domain = handles_of(pd);
  if (const auto known = of_domain.numbers.find(address); known != of_domain.numbers.end()) {
    ++handles_[known->second].references;
    domains_.hold(pd);
    return known->second;
  }
  std::uint16_t number = 0;
  if (!free_handles_.empty()) {
    number = free_handles_.back();
    free_handles_.pop_back();
  } else if (handles_.size() < std::min<std::size_t>(config_.max_ah, kUnknownAh)) {
    number = static_cast<std::uint16_t>(handles_.size());
    handles_.emplace_back();
  } else {
    return refuse(ENOMEM);
  }
  handles_[number] = AddressHandle{address, pd, 1, {}};
  of_domain.numbers.emplace(address, number);
  of_domain.found_is_valid = false;
  engine_.acquaint(pd, address, true);
  domains_.hold(pd);
  return number;
}

Nic::AddressHandle* Nic::find_ah(std::uint32_t pd, std::uint16_t ah) {
  if (ah >= handles_.size() || handles_[ah].references == 0 || handles_[ah].pd != pd) {
    return nullptr;
  }
  return &handles_[ah];
}

Outcome<void> Nic::destroy_ah(std::uint32_t pd, std::uint16_t ah) {
  AddressHandle* const handle = find_ah(pd, ah);
  if (handle == nullptr) {
    return refuse(EINVAL);
  }
  domains_.release(pd);
  if (--handle->references > 0) {
    return {};
  }
  // The last reference to the handle is gone: work to its address ends as flushed.
  for (const srd::PeerId peer : handle->peers) {
    for (const auto& qp : qps_) {
      if (peer != kNoPeer && qp != nullptr && qp->open_ && qp->init_.pd == pd) {
        engine_.flush(peer, srd::Qpn{qp->number_});
      }
    }
  }
  handles_of(pd).numbers.erase(handle->address);
  handles_of(pd).found_is_valid = false;
  engine_.acquaint(pd, handle->address, false);
  *handle = AddressHandle{};
  free_handles_.push_back(ah);
  return {};
}

// Numbers are tried in turn from the one after the latest. One is skipped while completions of its
// former owner are still to come, or while the library's table has another queue pair in its place.
Outcome<DatagramQp*> Nic::create_qp(const QpInit& init) {
  if (!domains_.has(init.pd)) {
    return refuse(EINVAL);
  }
  if (used_qps_ >= config_.max_qp) {
    return refuse(ENOMEM);
  }
  for (std::uint32_t tried = 0; tried < config_.qpn_count; ++tried) {
    const std::uint32_t index = (next_qp_ + tried) % config_.qpn_count;
    auto& slot = qps_[index];
    if ((slot != nullptr && slot->outstanding_ > 0) || table_place(config_.first_qpn + index)) {
      continue;
    }
    if (slot == nullptr) {
      slot = std::make_unique<DatagramQp>();
      slot->number_ = config_.first_qpn + index;
    }
    next_qp_ = index + 1;
    slot->init_ = init;
    slot->state_ = QpState::reset;
    slot->attributes_ = QpAttributes{};
    slot->used_ = true;
    table_place(slot->number_) = true;
    ++used_qps_;
    domains_.hold(init.pd);
    return slot.get();
  }
  return refuse(ENOMEM);
}

// The engine sees nothing of attributes that only a NIC has (P_Key index, port, starting PSN): they
// are kept to be read back.
Outcome<void> Nic::modify_qp(DatagramQp& qp, std::uint32_t mask, const QpAttributes& attributes) {
  const auto next =
      check_modify(QpRules{qp.init_.type, config_.rnr_retry}, qp.state_, mask, attributes);
  if (!next) {
    return refuse(next.error());
  }
  QpAttributes merged = qp.attributes_;
  if ((mask & kMaskPkeyIndex) != 0) {
    merged.pkey_index = attributes.pkey_index;
  }
  if ((mask & kMaskPort) != 0) {
    merged.port = attributes.port;
  }
  if ((mask & kMaskQkey) != 0) {
    merged.qkey = attributes.qkey;
  }
  if ((mask & kMaskSqPsn) != 0) {
    merged.sq_psn = attributes.sq_psn;
  }
  if ((mask & kMaskRnrRetry) != 0) {
    merged.rnr_retry = attributes.rnr_retry;
  }
  return enter(qp, *next, merged);
}

Outcome<void> Nic::enter(DatagramQp& qp, QpState next, const QpAttributes& attributes) {
  const srd::Qpn number{qp.number_};
  switch (next) {
    case QpState::reset:
      forget_work(qp);
      qp.attributes_ = QpAttributes{};
      qp.state_ = next;
      return {};
    case QpState::error:
      close_endpoint(qp);  // everything outstanding completes as flushed
      break;
    case QpState::init:
      // Receives can be posted from here on; messages are taken from RTR on.
      if (!qp.open_) {
        const auto opened = engine_.open_endpoint(
            number, srd::EndpointConfig{.qkey = attributes.qkey,
                                        .domain = qp.init_.pd,
                                        .receive_depth = qp.init_.receive_depth,
                                        .receiving = false,
                                        .acquainted_only = config_.rdma_needs_ah,
                                        .unsolicited_immediate = qp.init_.unsolicited_immediate});
        if (!opened) {
          return refuse(ENOMEM);
        }
        qp.open_ = true;
      }
      break;
    case QpState::rtr:
      engine_.set_receiving(number, true);
      break;
    case QpState::rts:
    case QpState::sqd:
    case QpState::sqe:
      break;
  }
  if (qp.open_ && attributes.qkey != qp.attributes_.qkey) {
    engine_.set_qkey(number, attributes.qkey);
  }
  qp.attributes_ = attributes;
  qp.state_ = next;
  return {};
}

void Nic::close_endpoint(DatagramQp& qp) {
  if (qp.open_) {
    engine_.close_endpoint(srd::Qpn{qp.number_});
    qp.open_ = false;
  }
}

// No work of this queue pair completes any more, whether it is in the engine, ended there, or never
// entered it.
void Nic::forget_work(DatagramQp& qp) {
  ++qp.generation_;
  close_endpoint(qp);
  std::erase_if(local_, [&qp](const WorkCompletion& done) { return done.qp == &qp; });
}

// The object stays: completions that are still in the engine point to it.
void Nic::destroy_qp(DatagramQp& qp) {
  forget_work(qp);
  qp.state_ = QpState::reset;
  qp.used_ = false;
  table_place(qp.number_) = false;
  --used_qps_;
  qp.init_.owner = nullptr;
  domains_.release(qp.init_.pd);
}

}  // namespace weft::nic
