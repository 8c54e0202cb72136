// Durable creates: the server answers after the write is on disk. References are a SQLite loop with
// the same guarantee, and the disk's own syncs. Measured on the machine's disk, and on simulated
// disks with common sync times.
#include <chrono>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sqlite3.h>
#include <thread>
#include <unistd.h>

#include "apiserver/cases.h"
#include "support/slow_disk.h"

namespace varda::bench {
namespace {

// Many short rounds: other load of the machine and its disk then affects all contenders equally.
constexpr int kRounds = 15;
constexpr auto kRound = std::chrono::milliseconds(600);
constexpr int kModelRounds = 5;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Synced writes of 1 KiB per second, in a file of fixed size, like SQLite's log after its first
// cycle. A growing file allocates blocks at every sync. That slows the first few thousand writes of
// both the server and the loop.
class Disk {
 public:
  explicit Disk(const std::filesystem::path& file)
      : fd_(::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0) die("cannot open " + file.string());
    for (int i = 0; i < kBlocks; ++i) write(i);
    ::fsync(fd_);
  }
  ~Disk() { ::close(fd_); }
  double rate() {
    const auto begin = Clock::now();
    int done = 0;
    for (; Clock::now() - begin < kRound; ++done) {
      write(done % kBlocks);
      if (::fdatasync(fd_) != 0) die("cannot sync");
    }
    return done / seconds_since(begin);
  }

 private:
  static constexpr int kBlocks = 4096;
  void write(int block) {
    if (::pwrite(fd_, bytes_.data(), bytes_.size(), block * static_cast<off_t>(bytes_.size())) !=
        static_cast<ssize_t>(bytes_.size()))
      die("cannot write");
  }
  const std::string bytes_ = std::string(1024, 'x');
  const int fd_;
};

// Transactions per second with one row of 1 KiB, at the store's durability.
class SqliteLoop {
 public:
  explicit SqliteLoop(const std::filesystem::path& file) {
    if (sqlite3_open(file.c_str(), &db_) != SQLITE_OK) die("cannot open " + file.string());
    execute(
        "PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
        "CREATE TABLE objects(key BLOB PRIMARY KEY, value BLOB NOT NULL)");
    if (sqlite3_prepare_v2(db_, "INSERT INTO objects VALUES(?1,?2)", -1, &insert_, nullptr) !=
        SQLITE_OK)
      die("cannot prepare");
    execute("PRAGMA synchronous=OFF");
    (void)rate();  // fills the log once
    execute("PRAGMA synchronous=FULL");
  }
  ~SqliteLoop() {
    sqlite3_finalize(insert_);
    sqlite3_close(db_);
  }
  double rate() {
    const std::string value = config_map("value");
    const auto begin = Clock::now();
    int done = 0;
    while (Clock::now() - begin < kRound) {
      const std::string key = "/registry/core/configmaps/default/object-" + std::to_string(next_++);
      sqlite3_bind_blob(insert_, 1, key.data(), static_cast<int>(key.size()), SQLITE_STATIC);
      sqlite3_bind_blob(insert_, 2, value.data(), static_cast<int>(value.size()), SQLITE_STATIC);
      if (sqlite3_step(insert_) != SQLITE_DONE) die("cannot insert");
      sqlite3_reset(insert_);
      ++done;
    }
    return done / seconds_since(begin);
  }

 private:
  void execute(const char* sql) {
    if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
      die(std::string("SQLite: ") + sql);
  }
  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  int next_ = 0;
};

struct Rate {
  double per_second = 0;
  std::vector<double> milliseconds;
};

Rate creates(const Endpoint& endpoint, int clients, const std::string& prefix) {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(clients));
  std::vector<std::unique_ptr<Wire>> wires;
  for (int i = 0; i < clients; ++i)
    wires.push_back(std::make_unique<Wire>(endpoint.port, endpoint.security));
  const auto begin = Clock::now();
  std::vector<std::jthread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      for (int next = 0; Clock::now() - begin < kRound; ++next) {
        const std::string post =
            request("POST", kConfigMaps, endpoint.token,
                    config_map(prefix + "-" + std::to_string(i) + "-" + std::to_string(next)));
        const auto sent = Clock::now();
        (void)wires[static_cast<std::size_t>(i)]->exchange(post, 201);
        times[static_cast<std::size_t>(i)].push_back(1e3 * seconds_since(sent));
      }
    });
  }
  threads.clear();
  Rate rate;
  for (const auto& some : times)
    rate.milliseconds.insert(rate.milliseconds.end(), some.begin(), some.end());
  rate.per_second = static_cast<double>(rate.milliseconds.size()) / seconds_since(begin);
  return rate;
}

struct Results {
  std::vector<double> one, many;
  std::vector<double> one_ms, many_ms;  // of all calls
  std::vector<double> cpu_us;           // of the server, per create with 32 clients
};

void take(Rate rate, std::vector<double>& rates, std::vector<double>& times) {
  rates.push_back(rate.per_second);
  times.insert(times.end(), rate.milliseconds.begin(), rate.milliseconds.end());
}

void take_turn(const ApiServer& server, const std::string& prefix, Results& results) {
  take(creates(server.endpoint(), 1, prefix + "-one"), results.one, results.one_ms);
  const double before = server.process().cpu_seconds();
  const std::size_t calls = results.many_ms.size();
  take(creates(server.endpoint(), 32, prefix + "-many"), results.many, results.many_ms);
  results.cpu_us.push_back(1e6 * (server.process().cpu_seconds() - before) /
                           static_cast<double>(results.many_ms.size() - calls));
}

void add(Report& report, const Results& results, const std::string& protocol, double loop,
         std::chrono::microseconds sync = std::chrono::microseconds(0)) {
  const double one = median(results.one), many = median(results.many);
  report.add({.what = "durable creates, 1 client, " + protocol,
              .measured = one,
              .reference = loop,
              .unit = "1/s",
              .against = "SQLite loop",
              .ratio = one / loop,
              .aim = "≥ 0.6x",
              .met = one >= 0.6 * loop});
  report.add({.what = "  p99", .measured = percentile(results.one_ms, 0.99), .unit = "ms"});
  const double p99 = percentile(results.many_ms, 0.99);
  report.add({.what = "durable creates, 32 clients, " + protocol,
              .measured = many,
              .reference = loop,
              .unit = "1/s",
              .against = "SQLite loop",
              .ratio = many / loop,
              .aim = "≥ 3x",
              .met = many >= 3 * loop});
  // A request during a sync waits for the end of that sync and for the next one.
  const bool possible = 2 * sync < std::chrono::milliseconds(5);
  report.add({.what = "  p99",
              .measured = p99,
              .unit = "ms",
              .aim = possible ? "< 5 ms" : "",
              .met = !possible || p99 < 5});
  report.add({.what = "  server CPU for one", .measured = median(results.cpu_us), .unit = "µs"});
}

// Approximate sync times of a server SSD, a desktop SSD and a memory card. The syncing thread
// sleeps, so the figure shows what the other threads do meanwhile.
void measure_model(Report& report, const std::filesystem::path& dir,
                   std::chrono::microseconds sync) {
  const std::string name =
      "syncs of " + (sync.count() < 1000 ? std::to_string(sync.count()) + " µs"
                                         : std::to_string(sync.count() / 1000) + " ms");
  slow_disk(sync);
  const ApiServer server(dir / "server", Security::kPlain, sync);
  SqliteLoop loop(dir / "loop.db");
  (void)creates(server.endpoint(), 32, "warm");
  std::vector<double> sqlite, sync_us;
  Results results;
  for (int round = 0; round < kModelRounds; ++round) {
    const Syncs before = syncs_of_sqlite();
    sqlite.push_back(loop.rate());
    const Syncs after = syncs_of_sqlite();
    sync_us.push_back(1e6 * (after.seconds - before.seconds) / (after.count - before.count));
    take_turn(server, "r" + std::to_string(round), results);
  }
  report.add(
      {.what = "bare SQLite loop, " + name,
       .measured = median(sqlite),
       .reference = 1e6 / median(sync_us),
       .unit = "1/s",
       .against = "its syncs alone, " + std::to_string(std::lround(median(sync_us))) + " µs each",
       .ratio = median(sqlite) * median(sync_us) / 1e6});
  add(report, results, "plain HTTP, " + name, median(sqlite), sync);
}

}  // namespace

void measure_creates(Report& report) {
  const Scratch scratch;
  const ApiServer plain(scratch.path() / "plain", Security::kPlain),
      tls(scratch.path() / "tls", Security::kTls);
  SqliteLoop loop(scratch.path() / "loop.db");
  Disk disk(scratch.path() / "syncs");
  std::vector<double> syncs, sqlite;
  Results over_plain, over_tls;
  for (const ApiServer* server : {&plain, &tls}) (void)creates(server->endpoint(), 32, "warm");
  for (int round = 0; round < kRounds; ++round) {
    const std::string prefix = "r" + std::to_string(round);
    syncs.push_back(disk.rate());
    sqlite.push_back(loop.rate());
    take_turn(plain, prefix, over_plain);
    take_turn(tls, prefix, over_tls);
  }
  report.add({.what = "bare SQLite loop (WAL, synchronous=FULL, 1 KiB a transaction)",
              .measured = median(sqlite),
              .reference = median(syncs),
              .unit = "1/s",
              .against = "write of 1 KiB + fdatasync",
              .ratio = median(sqlite) / median(syncs)});
  add(report, over_plain, "plain HTTP", median(sqlite));
  add(report, over_tls, "TLS", median(sqlite));
  for (const int microseconds : {200, 1000, 5000}) {
    const std::filesystem::path dir = scratch.path() / std::to_string(microseconds);
    std::filesystem::create_directories(dir);
    measure_model(report, dir, std::chrono::microseconds(microseconds));
  }
}

}  // namespace varda::bench
