// Owns the arithmetic of addresses.
//
// Both kinds of addresses are numbers of up to 128 bits, so that one loop serves both: the next
// address is the number and one.
#include "emu/k8s/address_pool.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace weft::k8s {
namespace {

using Number = unsigned __int128;

constexpr unsigned bits_of(bool is_v6) { return is_v6 ? 128 : 32; }

}  // namespace

std::string IpAddress::text() const {
  std::array<std::uint8_t, 16> bytes{};
  const std::size_t count = is_v6 ? 16 : 4;
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(number >> (8 * (count - 1 - i)));
  }
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  return ::inet_ntop(is_v6 ? AF_INET6 : AF_INET, bytes.data(), buffer.data(), buffer.size());
}

std::optional<IpAddress> parse_address(std::string_view text) {
  const std::string copy(text);
  const bool is_v6 = copy.find(':') != std::string::npos;
  std::array<std::uint8_t, 16> bytes{};
  // inet_pton() would end at a zero and not see what stands behind it.
  if (copy.find('\0') != std::string::npos ||
      ::inet_pton(is_v6 ? AF_INET6 : AF_INET, copy.c_str(), bytes.data()) != 1) {
    return std::nullopt;
  }
  IpAddress address{0, is_v6};
  for (std::size_t i = 0; i < (is_v6 ? 16U : 4U); ++i) {
    address.number = address.number << 8 | bytes[i];
  }
  return address;
}

std::optional<Subnet> parse_subnet(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    return std::nullopt;
  }
  const auto address = parse_address(text.substr(0, slash));
  const std::string_view digits = text.substr(slash + 1);
  unsigned length = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (!address || status != std::errc{} || end != digits.data() + digits.size() ||
      length > bits_of(address->is_v6)) {
    return std::nullopt;
  }
  const unsigned free = bits_of(address->is_v6) - length;
  // A shift by all of a number's bits is undefined.
  const Number rest = free == 128 ? ~Number{0} : (Number{1} << free) - 1;
  return Subnet{
      {address->number & ~rest, address->is_v6}, {address->number | rest, address->is_v6}, length};
}

// The first address of a subnet is its name, and the last one of IPv4 its broadcast address: hosts
// get neither, unless the subnet has only one or two. `start` and `end` may name them all the same.
Result<AddressPool> AddressPool::of(const Subnet& subnet, const std::optional<IpAddress>& start,
                                    const std::optional<IpAddress>& end) {
  AddressPool pool(subnet.first, subnet.last, subnet.length);
  if (subnet.last.number - subnet.first.number > 1) {
    ++pool.first_.number;
    --pool.last_.number;
  }
  for (const auto& bound : {start, end}) {
    if (bound &&
        (*bound < subnet.first || *bound > subnet.last || bound->is_v6 != subnet.first.is_v6)) {
      return fail(ErrorCode::invalid_argument, bound->text() + " is not within " +
                                                   subnet.first.text() + "/" +
                                                   std::to_string(subnet.length));
    }
  }
  pool.first_ = start.value_or(pool.first_);
  pool.last_ = end.value_or(pool.last_);
  pool.next_ = pool.first_;
  if (pool.last_ < pool.first_) {
    return fail(ErrorCode::invalid_argument,
                "it ends at " + pool.last_.text() + ", before its start " + pool.first_.text());
  }
  return pool;
}

void AddressPool::exclude(const IpAddress& first, const IpAddress& last) {
  if (first.is_v6 == first_.is_v6) {
    excluded_.emplace_back(first, last);
    std::ranges::sort(excluded_);
  }
}

IpAddress AddressPool::free_from(IpAddress address) const {
  for (const auto& [first, last] : excluded_) {  // in order, so one pass will do
    if (first <= address && address <= last) {
      address = last;
      if (++address.number == 0) {  // behind the last address there is
        return address;
      }
    }
  }
  return address;
}

std::optional<std::string> AddressPool::take() {
  const IpAddress address = free_from(next_);
  // The last two hold where the numbers have come round, at the end of all addresses.
  if (address > last_ || address < next_ || address < first_) {
    return std::nullopt;
  }
  next_ = address;
  ++next_.number;
  return address.text() + "/" + std::to_string(length_);
}

// Counted one by one, since ranges that are left out may overlap; up to `limit`, as IPv6 has ranges
// that nobody can count.
std::uint64_t AddressPool::size(std::uint64_t limit) const {
  std::uint64_t count = 0;
  IpAddress address = free_from(first_);
  while (count < limit && address <= last_ && address >= first_) {
    ++count;
    ++address.number;
    address = free_from(address);
  }
  return count;
}

}  // namespace weft::k8s
