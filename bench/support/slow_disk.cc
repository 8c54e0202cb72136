#include "support/slow_disk.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <sqlite3.h>
#include <sys/prctl.h>
#include <thread>

#include "base/mutex.h"
#include "support/wire.h"

namespace varda::bench {
namespace {

using Clock = std::chrono::steady_clock;

// SQLite's VFS with another xSync. Each file keeps its layout and gets a copy of its methods,
// stored beside the original methods.
class SlowDisk {
 public:
  SlowDisk() : real_(*sqlite3_vfs_find(nullptr)), vfs_(real_) {
    vfs_.zName = "slow";
    vfs_.pNext = nullptr;
    vfs_.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
      return instance->open(name, file, flags, out);
    };
    if (sqlite3_vfs_register(&vfs_, 1) != SQLITE_OK) die("cannot register the slow disk");
  }

  void set(std::chrono::microseconds sync) { sync_ = sync; }
  Syncs syncs() const {
    return {.count = static_cast<double>(count_.load()),
            .seconds = 1e-9 * static_cast<double>(nanoseconds_.load())};
  }

  static SlowDisk* instance;

 private:
  struct Methods {
    sqlite3_io_methods changed;
    const sqlite3_io_methods* own;
  };

  int open(const char* name, sqlite3_file* file, int flags, int* out) {
    const int code = real_.xOpen(&vfs_, name, file, flags, out);
    if (code == SQLITE_OK && file->pMethods != nullptr) file->pMethods = &changed(file->pMethods);
    return code;
  }

  const sqlite3_io_methods& changed(const sqlite3_io_methods* own) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto [found, fresh] = methods_.try_emplace(own, Methods{.changed = *own, .own = own});
    if (fresh)
      found->second.changed.xSync = [](sqlite3_file* file, int flags) {
        // The methods are the first member of the struct that also has the originals.
        const auto* methods = reinterpret_cast<const Methods*>(file->pMethods);
        return instance->sync(*methods->own, file, flags);
      };
    return found->second.changed;
  }

  int sync(const sqlite3_io_methods& own, sqlite3_file* file, int flags) {
    // Microsecond precision: by default the kernel may lengthen a sleep by 50 µs to save wake-ups.
    static thread_local const int exact = ::prctl(PR_SET_TIMERSLACK, 1);
    (void)exact;
    const auto begin = Clock::now();
    const std::chrono::microseconds time = sync_;
    int code = SQLITE_OK;
    if (time.count() > 0) {
      std::this_thread::sleep_until(begin + time);
    } else {
      code = own.xSync(file, flags);
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add((Clock::now() - begin).count(), std::memory_order_relaxed);
    return code;
  }

  const sqlite3_vfs real_;
  std::atomic<std::chrono::microseconds> sync_{std::chrono::microseconds(0)};
  sqlite3_vfs vfs_;
  std::atomic<std::int64_t> count_{0}, nanoseconds_{0};
  Mutex mutex_;
  std::map<const sqlite3_io_methods*, Methods> methods_
      GUARDED_BY(mutex_);  // nodes with stable addresses
};

SlowDisk* SlowDisk::instance = nullptr;

}  // namespace

void slow_disk(std::chrono::microseconds sync) {
  if (SlowDisk::instance == nullptr)
    SlowDisk::instance = new SlowDisk;  // kept while SQLite uses it
  SlowDisk::instance->set(sync);
}

Syncs syncs_of_sqlite() {
  return SlowDisk::instance == nullptr ? Syncs{} : SlowDisk::instance->syncs();
}

}  // namespace varda::bench
