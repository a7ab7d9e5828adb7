// Owns the giving out of places on NICs.
#include "emu/daemon/plant.hpp"

#include <arpa/inet.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "emu/daemon/attach_protocol.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::emu {
namespace {

constexpr std::size_t kMaxHosts = 254;

srd::Address ipv4_address(const std::array<std::uint8_t, 2>& prefix, std::size_t host,
                          std::size_t nic) {
  srd::Address address;
  address.bytes[10] = address.bytes[11] = std::byte{0xFF};
  address.bytes[12] = std::byte{prefix[0]};
  address.bytes[13] = std::byte{prefix[1]};
  address.bytes[14] = static_cast<std::byte>(host + 1);
  address.bytes[15] = static_cast<std::byte>(nic + 1);
  return address;
}

// The n of "h<n>".
std::optional<std::uint32_t> number_of(const std::string& host) {
  std::uint32_t number = 0;
  const char* end = host.data() + host.size();
  const bool digits = host.size() > 1 && host.size() < 6 && host[0] == 'h' &&
                      std::from_chars(host.data() + 1, end, number).ptr == end;
  return digits ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<Plant> Plant::make(const Options& options) {
  if (options.hosts.empty() || options.first_host == 0 ||
      options.hosts.size() + options.first_host - 1 > kMaxHosts) {
    return fail(ErrorCode::invalid_argument, std::to_string(options.hosts.size()) +
                                                 " hosts; give 1 to " + std::to_string(kMaxHosts));
  }
  if (options.nics_per_host == 0 || options.nics_per_host > kMaxNicsPerHost) {
    return fail(ErrorCode::invalid_argument, std::to_string(options.nics_per_host) +
                                                 " NICs per host; give 1 to " +
                                                 std::to_string(kMaxNicsPerHost));
  }
  Plant plant;
  for (std::size_t h = 0; h < options.hosts.size(); ++h) {
    const std::string& host = options.hosts[h];
    const std::uint32_t nics =
        h < options.nics_of_host.size() ? options.nics_of_host[h] : options.nics_per_host;
    if (nics == 0 || nics > kMaxNicsPerHost) {
      return fail(ErrorCode::invalid_argument,
                  "host '" + host + "' has " + std::to_string(nics) + " links to the network; a " +
                      "host may have 1 to " + std::to_string(kMaxNicsPerHost) + " NICs");
    }
    if (host.empty() || host.size() >= kMaxHostName ||
        std::count(options.hosts.begin(), options.hosts.end(), host) != 1) {
      return fail(ErrorCode::invalid_argument,
                  "host name '" + host + "' is empty, too long, or not the only one");
    }
    for (std::uint32_t index = 0; index < nics; ++index) {
      auto nic = std::make_unique<Nic>();
      nic->host = host;
      nic->index = index;
      nic->port = static_cast<std::uint32_t>(plant.nics_.size());
      nic->address =
          ipv4_address(options.prefix, options.first_host - 1 + plant.hosts_.size(), index);
      plant.by_address_.emplace(nic->address, nic.get());
      plant.nics_.push_back(std::move(nic));
    }
    plant.hosts_.push_back(host);
    plant.counted_ = plant.counted_ && !number_of(host);
  }
  plant.first_host_ = options.first_host;
  return plant;
}

Result<std::vector<Nic*>> Plant::nics_of(const std::string& host) {
  std::string name = host.empty() ? hosts_.front() : host;
  // h1, h2, ... also count the hosts of a topology, unless its own names are of that kind.
  if (const auto number = number_of(name);
      counted_ && number && *number >= first_host_ && *number - first_host_ < hosts_.size()) {
    name = hosts_[*number - first_host_];
  }
  std::vector<Nic*> found;
  for (const auto& nic : nics_) {
    if (nic->host == name) {
      found.push_back(nic.get());
    }
  }
  if (found.empty()) {
    return fail(ErrorCode::not_found, "there is no host '" + name + "'; there are " +
                                          std::to_string(hosts_.size()) + ": " + hosts_.front() +
                                          (hosts_.size() > 1 ? " ... " + hosts_.back() : ""));
  }
  return found;
}

Result<void> Plant::remember(const std::string& file) {
  auto places = Places::open(file, nics_.size() * kSlotsPerNic);
  if (!places) {
    return tl::unexpected(places.error());
  }
  places_ = std::move(*places);
  for (const auto& nic : nics_) {
    srd::Life latest;
    for (std::size_t id = 1; id < kSlotsPerNic; ++id) {
      const srd::Life life{places_.get(place_of(*nic, id)).life};
      nic->lives[id] = life;
      if (life.value() != 0 && (latest.value() == 0 || latest.before(life))) {
        latest = life;
        nic->next_slot = static_cast<std::uint16_t>(id % (kSlotsPerNic - 1) + 1);
      }
    }
  }
  return {};
}

bool Plant::is_waited_for(const Nic& nic, std::size_t id) const {
  const std::int32_t process = places_.get(place_of(nic, id)).process;
  return process == Places::kUnknown ? keep_unknown_
                                     : process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

Result<Slot*> Plant::occupy(Nic& nic, const Wish& wish, std::uint32_t now_life,
                            std::int32_t process) {
  std::size_t id = 0;
  srd::Life life{wish.life};
  if (wish.attachment != 0) {
    id = wish.attachment;
    if (id >= kSlotsPerNic || nic.slots[id] != nullptr || life.value() == 0 ||
        (nic.lives[id].value() != 0 && life.before(nic.lives[id]))) {
      return fail(ErrorCode::already_exists, "the place on the NIC was given to somebody else");
    }
  } else {
    for (std::size_t tried = 1; tried < kSlotsPerNic && id == 0; ++tried) {
      if (nic.slots[nic.next_slot] == nullptr && !is_waited_for(nic, nic.next_slot)) {
        id = nic.next_slot;
      }
      nic.next_slot = static_cast<std::uint16_t>(nic.next_slot % (kSlotsPerNic - 1) + 1);
    }
    if (id == 0) {
      return fail(ErrorCode::out_of_resources,
                  "all " + std::to_string(kSlotsPerNic - 1) + " places on this NIC are taken");
    }
    life = srd::Life{now_life};
    if (nic.lives[id].value() != 0 && !nic.lives[id].before(life)) {
      life = nic.lives[id].plus(1);
    }
    if (life.value() == 0) {
      ++life;
    }
  }
  nic.lives[id] = life;
  places_.set(place_of(nic, id),
              {.life = life.value(), .process = process > 0 ? process : Places::kUnknown});
  nic.slots[id] = std::make_unique<Slot>();
  Slot& slot = *nic.slots[id];
  slot.nic = &nic;
  slot.id = static_cast<std::uint16_t>(id);
  slot.life = life;
  occupied_.push_back(&slot);
  return &slot;
}

void Plant::vacate(Slot& slot) {
  std::erase(occupied_, &slot);
  for (Slot* other : occupied_) {
    if (other->last_target == &slot) {
      other->last_target = nullptr;
    }
  }
  places_.set(place_of(*slot.nic, slot.id), {.life = slot.life.value(), .process = 0});
  slot.nic->slots[slot.id].reset();
}

std::string to_text(const srd::Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (srd::wire::is_ipv4(address)) {
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  }
  return text;
}

}  // namespace weft::emu
