// Owns the list of what the guest program can do: each case is a process that ends with 0 when all
// was well.
#pragma once

namespace weft::conformance {

// --- Ends of threads and processes (ends.cpp)
int exit_in_handler();            // while the same thread is making progress, half of the time
int exit_at_once();               // two ranks: one sends, one leaves with what it got
int exit_cancelled();             // by a thread that is to be cancelled
int cancelled_poller();           // a thread is cancelled in its polls; the others go on
int cancelled_questions();        // of a thread; calls that are no points of cancellation
int closed_while_written();       // by another thread: device files
int written_in_a_full_process();  // the same without a number left
int forks();                      // while another thread opens and closes the device
int children_past_fork();         // by vfork() and _Fork()
int grandchildren_by_vfork();     // that ask before their parent does
int forked_channels();            // children close theirs, whatever the parent's threads were at
int first_use();                  // by many threads at once

// --- Threads that wait for events of rdma_cm (waiting.cpp)
int cancelled_waiter();                // others are interrupted, or do not wait
int closed_waiter();                   // by another thread: its file
int late_handler();                    // of events: its file is closed before it is back
int late_handler_of_a_full_process();  // which has no number left to look with
int restarted_waiter();                // by SA_RESTART, of an open file and of a closed one
int cancelled_waiters();               // which leave nothing
int closed_duplicate();                // of a file that stays open

// --- Libraries that come and go (loader.cpp)
int first_calls_while_loading();   // of what is wrapped, in threads that a constructor waits for
int verbs_while_loading();         // the same with queue pairs
int libraries_that_come_and_go();  // beside threads that use the device

// --- Descriptors (descriptors.cpp)
int close_all();    // closefrom(), close_range() and close(), then the device once more
int failed_dup();   // leaves the device file what it was
int numbers();      // ours are out of the program's way
int past_us();      // a device file is closed by calls that are not wrapped
int few_numbers();  // as many as `ulimit -n` leaves
int channels();     // come and go without leaving anything

// --- Numbers of device files (device_numbers.cpp)
int duplicated_onto_itself();   // onto another number of the same file
int replaced_while_used();      // by dup2(): another thread finds the one file or the other
int duplicated_while_closed();  // by another thread: a file, or none
int ioctls_of_any_file();       // which the kernel answers before it asks a driver
int flags_of_open();
int lowest_number();  // is what open() gives

// --- Sockets that ask for devices (netlink.cpp)
int netlink_sockets();

// --- Calls of the kernel (kernel.cpp)
int without_the_kernel();  // messages are sent and received
int posts_past_fork();     // by children, which have nothing to post to
int bad_posts();           // at pointers that are EFAULT

// --- Signals and memory (pages.cpp)
int trap_forgets();       // a queue pair that is gone, and whose page has another use
int trap_with_handler();  // the program sets a handler of its own afterwards
int hooked_memory();      // with UCX's hooks on mmap() and its relatives

// --- Buffers that are gone, and the program's own faults (faults.cpp)
int gone_buffers();     // unmapped, protected and cut off while they are registered
int gone_everywhere();  // by threads that block all signals, while others poll
int own_faults();       // the program's handlers find what the kernel promises
int masked_faults();    // however the program comes to block them
int own_deaths();       // children end as they would without us
int vfork_actions();    // children of vfork() leave their parent's alone

// --- Paths (files.cpp)
int open_without_malloc();
int relative_paths();
int steps_back();    // out of the emulated tree and in again, as the kernel would lead
int bad_pointers();  // are EFAULT
int own_links();     // lead to devices
int sandboxed();     // the same where the kernel may not copy for us
int other_names();   // that glibc has for the same calls
int small_stacks();  // of the callers (stacks.cpp)

// --- Names (names.cpp)
int device_names();
int listings();     // of device files
int whereabouts();  // of the program
int positions();    // in a device file, which has none
int interfaces();   // of the host, as getifaddrs() lists them

// --- Programs that wait by looking at their memory (spin.cpp). Two ranks; prints the median of one
// way. SPIN_TURNS says how many.
int spin_calls();   // posts and takes completions by the library's functions
int spin_stores();  // the same by functions that we do not see: doorbells are stores
int spin_writes();  // the same without any library, by RDMA writes of SPIN_BYTES

// --- Completion events (events.cpp)
int event_latency();  // two ranks: prints the median of arm, post, sleep until the answer is there

}  // namespace weft::conformance
