// Owns the moment that a close gives to a thread that is about to wait for the next event.
#pragma once

#include "emu/kernel/ucma/file.hpp"

namespace weft::preload {

// Before the last descriptor of the file is closed.
//
// In programs such as rping, one thread handles the events and another one closes the channel when
// the last of them is handled. Nothing makes it wait until the first one sleeps again, which would
// be refused otherwise: they rely on that to take down what a connection has takes long enough, as
// it does with a real NIC. So we wait while the thread that has got the last event is running and
// has not asked for the next one, for some milliseconds at most.
void await_event_handler(const kernel::CmFile& file);

}  // namespace weft::preload
