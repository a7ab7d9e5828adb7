// Owns finding out what this process has mapped, without touching the memory.
#pragma once

#include <cstdint>
#include <optional>

namespace weft::kernel {

struct MemoryArea {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
};

// One walk over the mappings of this process, upwards. Allocates nothing. What it finds may have
// changed when it returns: other threads map and unmap.
class Mappings {
 public:
  enum class Source : std::uint8_t { best, text };  // text: as kernels before 6.11 have it

  explicit Mappings(Source source = Source::best);
  ~Mappings();
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  // False: the kernel does not say; nothing can be found.
  [[nodiscard]] bool good() const { return fd_ >= 0; }
  // The mapping that contains `address`, which must not be lower than in the call before.
  [[nodiscard]] std::optional<MemoryArea> find(std::uint64_t address);

 private:
  [[nodiscard]] bool ask(std::uint64_t address, std::optional<MemoryArea>& found) const;
  [[nodiscard]] std::optional<MemoryArea> next_line();

  static constexpr std::size_t kBuffer = 8192;  // longer than any line
  int fd_ = -1;
  bool text_ = false;
  std::optional<MemoryArea> latest_;  // read and not yet passed
  char buffer_[kBuffer];
  std::size_t used_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace weft::kernel
