// Owns the moment that a close gives to a thread that is about to wait for the next event.
#pragma once

#include "emu/kernel/ucma/file.hpp"

namespace weft::preload {

// To be called before the last descriptor of the file is closed.
//
// In programs such as rping, one thread handles the events, and another one closes the channel when
// the last of them is handled. If the first one then asks for the next event, it is told that there
// is no such file, and ends the program with an error. Only time prevents that: with a real NIC, to
// take a connection down takes long enough for the first thread to be asleep again. So we wait
// while the thread that has got the last event is running and has not asked for the next one, for
// 30 ms at most.
void await_event_handler(const kernel::CmFile& file);

}  // namespace weft::preload
