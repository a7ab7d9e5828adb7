// Owns a completion queue as the stock soft-RoCE library sees it: a ring, of which the application
// moves the consumer's index, and events that it asks for by a command.
#pragma once

#include <memory>

#include "emu/devices/rxe/ring.hpp"
#include "emu/kernel/device.hpp"
#include "emu/roce/engine/types.hpp"

namespace weft::devices::rxe {

// Written by the thread that holds the device; read by any thread of the application, without a
// lock.
class CompletionQueue : public kernel::Cq {
 public:
  CompletionQueue(const kernel::FileServices& file, std::uint32_t entries);

  [[nodiscard]] bool valid() const { return ring_->valid(); }
  [[nodiscard]] MapInfo map_info() const { return ring_->map_info(); }
  // The next completion, or the next solicited one, sends an event. Those that are there send none.
  void arm(bool solicited_only);
  [[nodiscard]] bool armed() const { return armed_ != Armed::no; }
  // What finds no room is lost, and an asynchronous event says so once.
  void publish(const Cqe& entry, bool solicited);
  // False: there is no room for so many, or for what is in the queue.
  [[nodiscard]] bool resize(std::uint32_t entries);

 private:
  enum class Armed : std::uint8_t { no, solicited, any };

  kernel::FileServices file_;
  std::unique_ptr<Ring> ring_;
  // The application unmaps it only after it has been told of the new one.
  std::unique_ptr<Ring> former_;
  Armed armed_ = Armed::no;
  bool overrun_ = false;
};

}  // namespace weft::devices::rxe
