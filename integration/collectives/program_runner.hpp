// Owns the GPU's part of a program: it waits for slots, copies and reduces.
//
// A GPU would spin in a kernel until a slot is there. Here advance() does what is possible and
// returns, so that one thread can be the GPU of all channels and the proxies as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "integration/collectives/connection.hpp"
#include "integration/collectives/data.hpp"
#include "integration/collectives/shape.hpp"

namespace weft::collectives {

struct RunnerSetup {
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  std::uint32_t ranks = 2;
  std::size_t slot_bytes = 0;
  bool audit = false;  // memory that was read is poisoned
};

// The connections of a program, in the order of its peers.
struct Ends {
  std::vector<ReceiveChannel*> from;
  std::vector<SendChannel*> to;
};

// One program at work: a position in its steps. `program` and the channels have to outlive it.
class ProgramRunner {
 public:
  ProgramRunner(const RunnerSetup& setup, const RankProgram& program, Ends ends);

  // All has been done, and the proxies have heard of every message.
  [[nodiscard]] bool finished() const;
  // As far as it goes without waiting. Returns whether anything moved.
  bool advance(std::span<std::byte> input, std::span<std::byte> output);

 private:
  [[nodiscard]] bool step_once(std::span<std::byte> input, std::span<std::byte> output);
  // Whether all that the step needs is here. Simple: the messages; else the lines.
  [[nodiscard]] bool has_come(const ProgramStep& step, std::size_t bytes);
  [[nodiscard]] bool has_room(const ProgramStep& step) const;
  // Leaves the received slots, and sends what is in `out`.
  void hand_over(const ProgramStep& step, std::size_t bytes, const std::byte* out);
  void check_size(std::size_t end, std::size_t bytes) const;

  RunnerSetup setup_;
  const RankProgram& program_;
  Ends ends_;
  // The slice that comes next.
  std::size_t step_ = 0;
  std::uint32_t slice_ = 0;
  // Lines: the data of each end, how many of them have come, and what goes out.
  std::vector<std::vector<std::byte>> data_;
  std::vector<std::size_t> taken_;
  std::vector<std::byte> out_;
};

}  // namespace weft::collectives
