// Owns one ioctl of the verbs interface on its way: attributes in, attributes out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "emu/kernel/abi/uverbs.hpp"
#include "emu/kernel/uverbs/objects.hpp"
#include "emu/nic/outcome.hpp"

namespace weft::kernel {

// One attribute that a method takes.
struct IoctlAttributeSpec {
  enum class Kind : std::uint8_t { in, out, object, new_object };
  std::uint16_t id = 0;
  Kind kind = Kind::in;
  std::uint16_t size = 0;  // least bytes of `in` and `out`
  bool required = true;
};

// In this order: read(), check() against the method's list, then get() and answer(). Attributes are
// identified by their number within the method.
class IoctlCall {
 public:
  using Spec = std::span<const IoctlAttributeSpec>;

  // Copies header and attributes from the application, once.
  [[nodiscard]] nic::Outcome<void> read(std::uint64_t argument, std::uint32_t driver_id);
  [[nodiscard]] std::uint16_t object() const { return header_.object_id; }
  [[nodiscard]] std::uint16_t method() const { return header_.method_id; }
  // Holds what was given against what the method takes, and copies what is behind pointers.
  [[nodiscard]] nic::Outcome<void> check(Spec spec);

  [[nodiscard]] bool has(std::uint16_t id) const { return find(id) != nullptr; }
  // Of a checked `in` attribute that is there.
  template <class T>
  [[nodiscard]] T get(std::uint16_t id) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const Given* const given = find(id);
    if (given != nullptr) {
      std::memcpy(&value, given->bytes.data(), std::min(sizeof value, given->bytes.size()));
    }
    return value;
  }
  [[nodiscard]] std::uint32_t handle(std::uint16_t id) const;
  // Bytes that a checked `out` attribute has room for.
  [[nodiscard]] std::size_t room(std::uint16_t id) const;
  // To a checked `out` or `new_object` attribute; what was not asked for is not told.
  template <class T>
  [[nodiscard]] nic::Outcome<void> answer(std::uint16_t id, const T& value) {
    return answer_bytes(id, std::as_bytes(std::span(&value, 1)));
  }
  [[nodiscard]] nic::Outcome<void> answer_bytes(std::uint16_t id, std::span<const std::byte> bytes);
  [[nodiscard]] nic::Outcome<void> answer_handle(std::uint16_t id, std::uint32_t handle);

 private:
  // An attribute as the application gave it.
  struct Given {
    abi::IoctlAttribute attribute;
    std::uint64_t place = 0;  // where the application has it
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] const Given* find(std::uint16_t id) const;
  [[nodiscard]] static nic::Outcome<void> take(const IoctlAttributeSpec& spec, Given& given);

  abi::IoctlHeader header_{};
  std::vector<Given> given_;
};

}  // namespace weft::kernel
