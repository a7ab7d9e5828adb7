// Owns the list of what the guest program can do: each case is a process that ends with 0 when all
// was well.
#pragma once

namespace weft::conformance {

// --- Ends of threads and processes (ends.cpp)
int exit_in_handler();   // while the same thread is making progress, half of the time
int exit_at_once();      // two ranks: one sends, one leaves with what it got
int cancelled_poller();  // a thread is cancelled in its polls; the others go on
int forks();             // while another thread opens and closes the device
int first_use();         // by many threads at once

// --- Descriptors (descriptors.cpp)
int close_all();   // closefrom(), close_range() and close(), then the device once more
int failed_dup();  // leaves the device file what it was
int numbers();     // ours are out of the program's way
int channels();    // come and go without leaving anything

// --- Signals and memory (pages.cpp)
int trap_forgets();       // a queue pair that is gone, and whose page has another use
int trap_with_handler();  // the program sets a handler of its own afterwards
int hooked_memory();      // with UCX's hooks on mmap() and its relatives

// --- Paths (files.cpp)
int open_without_malloc();
int relative_paths();

// --- Completion events (events.cpp)
int event_latency();  // two ranks: prints the median of arm, post, sleep until the answer is there

}  // namespace weft::conformance
