#include "net/splicer.h"

#include <atomic>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <thread>

#include "base/mutex.h"
#include "base/testing/eventually.h"
#include "net/certificates.h"
#include "net/client.h"
#include "net/server.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace splicer_test {

using namespace std::chrono_literals;
using testing::RawSocket;

Context patience() { return Context().with_timeout(60s); }

std::string read_exactly(Tunnel& tunnel, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t filled = 0;
  while (filled < bytes) {
    const auto count = tunnel.read(patience(), {out.data() + filled, bytes - filled});
    if (!count.ok() || *count == 0) break;
    filled += *count;
  }
  return out.substr(0, filled);
}

/// A pair of tunnels, whose far ends the test holds.
// The splicer may end the pair after a test has ended.
struct Spliced {
  struct Ending {
    std::atomic<bool> ended{false};
    Splicer::Report report;
  };
  std::unique_ptr<Tunnel> left, right;
  std::uint64_t id = 0;
  std::shared_ptr<Ending> ending = std::make_shared<Ending>();
  std::atomic<bool>& ended = ending->ended;
  Splicer::Report& report = ending->report;

  explicit Spliced(Splicer& splicer, std::string preamble = "",
                   std::optional<SteadyTime> until = {}) {
    auto [a, b] = make_tunnel_pair();
    auto [c, d] = make_tunnel_pair();
    left = std::move(a);
    right = std::move(d);
    id = splicer.splice({.first = std::move(b),
                         .second = std::move(c),
                         .preamble = std::move(preamble),
                         .until = until,
                         .on_end = [ending = ending](const Splicer::Report& now) {
                           ending->report = now;
                           ending->ended.store(true);
                         }});
  }
  bool wait() {
    return bool(eventually("the pair ends", [this] { return ended.load(); }));
  }
};

TEST(Splicer, BytesFlowBothWaysAndEndsArePassedOn) {
  Splicer splicer({});
  Spliced pair(splicer, "preamble ");
  ASSERT_NE(pair.id, 0u);
  ASSERT_TRUE(pair.left->write(patience(), "to the right").ok());
  EXPECT_EQ(read_exactly(*pair.right, 21), "preamble to the right");
  pair.left->finish();
  EXPECT_EQ(read_exactly(*pair.right, 1), "");
  ASSERT_TRUE(pair.right->write(patience(), "to the left").ok());
  EXPECT_EQ(read_exactly(*pair.left, 11), "to the left");
  EXPECT_FALSE(pair.ended.load());
  pair.right->finish();
  ASSERT_TRUE(pair.wait());
  EXPECT_EQ(pair.report.end, Splicer::End::kFinished);
  EXPECT_EQ(pair.report.forward_bytes, 12u);
  EXPECT_EQ(pair.report.backward_bytes, 11u);
  EXPECT_TRUE(eventually([&] { return splicer.pairs() == 0; }));
}

TEST(Splicer, EveryByteArrivesInOrderUnderBackPressure) {
  Splicer splicer({.buffer_bytes_max = 1000});
  Spliced pair(splicer);
  constexpr std::size_t kBytes = 3'000'000;
  const auto pattern = [](std::size_t i) { return static_cast<char>(i * 7 + i / 251); };
  const auto send = [&](Tunnel& tunnel) {
    std::string text;
    for (std::size_t i = 0; i < kBytes; ++i) {
      text += pattern(i);
      if (text.size() < 50'000 && i + 1 < kBytes) continue;
      ASSERT_TRUE(tunnel.write(patience(), text).ok());
      text.clear();
    }
  };
  std::jthread sender([&] { send(*pair.left); });
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < kBytes;) {
    const std::string bytes = read_exactly(*pair.right, std::min<std::size_t>(997, kBytes - at));
    ASSERT_FALSE(bytes.empty());
    for (const char c : bytes) wrong += c == pattern(at++) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Splicer, SenderWaitsForASlowReader) {
  Splicer splicer({});
  Spliced pair(splicer);
  // The kernel's buffers and ours fill up, then nothing more is taken.
  const std::string block(1 << 20, 'x');
  std::size_t taken = 0;
  while (taken < (64u << 20)) {
    if (!pair.left->write(Context().with_timeout(300ms), block).ok()) break;
    taken += block.size();
  }
  EXPECT_LT(taken, 8u << 20);
  Spliced other(splicer);
  ASSERT_TRUE(other.left->write(patience(), "quick").ok());
  EXPECT_EQ(read_exactly(*other.right, 5), "quick") << "other pairs do not wait";
}

TEST(Splicer, BrokenTunnelResetsThePeer) {
  Splicer splicer({});
  auto server = *Server::create({}, [&](Request, Responder) {});
  std::atomic<bool> ended{false};
  std::unique_ptr<Tunnel> accepted;
  std::atomic<bool> has{false};
  auto listener = *splicer.listen("127.0.0.1:0", [&](std::unique_ptr<Tunnel> tunnel) {
    accepted = std::move(tunnel);
    has.store(true);
  });
  RawSocket raw(std::stoi(listener->address().substr(listener->address().rfind(':') + 1)));
  ASSERT_TRUE(eventually([&] { return has.load(); }));
  auto [near, far] = make_tunnel_pair();
  splicer.splice({.first = std::move(accepted),
                  .second = std::move(near),
                  .on_end = [&](const Splicer::Report& report) {
                    EXPECT_EQ(report.end, Splicer::End::kBroken);
                    EXPECT_NE(report.error, "");
                    ended.store(true);
                  }});
  raw.write("x");
  EXPECT_EQ(read_exactly(*far, 1), "x");
  raw.reset();
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
}

TEST(Splicer, SilentPairIsClosedAfterTheIdleTime) {
  Splicer splicer({.idle_timeout = 200ms});
  Spliced silent(splicer), busy(splicer);
  const SteadyTime begin = system_clock().now();
  while (!silent.ended.load() && system_clock().now() - begin < 60s) {
    ASSERT_TRUE(busy.left->write(patience(), "x").ok());
    ASSERT_EQ(read_exactly(*busy.right, 1), "x");
  }
  EXPECT_EQ(silent.report.end, Splicer::End::kIdle);
  EXPECT_FALSE(busy.ended.load());
}

TEST(Splicer, PairEndsAtItsTimeOrWhenClosed) {
  Splicer splicer({});
  Spliced expired(splicer, "", system_clock().now() + 10ms), closed(splicer);
  ASSERT_TRUE(expired.wait());
  EXPECT_EQ(expired.report.end, Splicer::End::kExpired);
  splicer.close(closed.id);
  splicer.close(closed.id);
  splicer.close(12345);
  ASSERT_TRUE(closed.wait());
  EXPECT_EQ(closed.report.end, Splicer::End::kClosed);
  EXPECT_EQ(read_exactly(*closed.left, 1), "");
}

TEST(Splicer, LimitRefusesFurtherPairs) {
  Splicer splicer({.pairs_max = 1});
  Spliced first(splicer), second(splicer);
  EXPECT_NE(first.id, 0u);
  EXPECT_EQ(second.id, 0u);
  EXPECT_EQ(read_exactly(*second.left, 1), "") << "its tunnels are closed";
}

TEST(Splicer, DialConnectsOrSaysWhyNot) {
  Splicer splicer({});
  auto server = *Server::create({}, inline_handler([](const Request&) { return Response(); }));
  Mutex mutex;
  std::vector<std::string> results;
  const auto note = [&](Result<std::unique_ptr<Tunnel>> tunnel) {
    const MutexLock lock(mutex);
    results.push_back(tunnel.ok() ? "connected to " + (*tunnel)->peer() : tunnel.error().message());
  };
  const std::string live = server->address();
  splicer.dial(live, 60s, note);
  ASSERT_TRUE(eventually([&] {
    const MutexLock lock(mutex);
    return results.size() == 1;
  }));
  EXPECT_EQ(results[0], "connected to " + live);
  server->stop(0ms);
  splicer.dial(live, 60s, note);
  splicer.dial("host.example:80", 60s, note);
  ASSERT_TRUE(eventually([&] {
    const MutexLock lock(mutex);
    return results.size() == 3;
  }));
  const MutexLock lock(mutex);
  for (const std::string& text : {results[1], results[2]})
    EXPECT_TRUE(text.find("refused") != std::string::npos ||
                text.find("numeric") != std::string::npos)
        << text;
}

TEST(Splicer, StopEndsPairsDialsAndListenersInAnyOrder) {
  auto splicer = std::make_unique<Splicer>(Splicer::Options{.threads = 2});
  Spliced pair(*splicer);
  auto listener = *splicer->listen("127.0.0.1:0", [](std::unique_ptr<Tunnel>) {});
  splicer->stop();
  EXPECT_TRUE(pair.wait());
  EXPECT_EQ(pair.report.end, Splicer::End::kClosed);
  listener.reset();
  Spliced late(*splicer);
  EXPECT_EQ(late.id, 0u);
  bool called = false;
  splicer->dial("127.0.0.1:1", 60s, [&](auto result) { called = !result.ok(); });
  EXPECT_TRUE(called);
}

TEST(Splicer, IdleTlsConnectionsAreCheap) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  constexpr std::size_t kPairs = 500;
  if (files.rlim_cur < 4 * kPairs + 100) GTEST_SKIP() << "too few descriptors";
  const KeyPair ca = *make_ca("test-ca", 24h);
  const KeyPair pair =
      *make_certificate(ca, {.common_name = "s", .hosts = {"127.0.0.1"}, .server = true});
  Splicer splicer({});
  std::vector<std::unique_ptr<Tunnel>> targets, clients;
  Mutex mutex;
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = pair.certificate_pem, .key_pem = pair.key_pem};
  const auto server = *Server::create(options, [&](Request, Responder respond) {
    respond(upgrade_response("x", [&](std::unique_ptr<Tunnel> tunnel) {
      auto [near, far] = make_tunnel_pair();
      {
        const MutexLock lock(mutex);
        targets.push_back(std::move(far));
      }
      splicer.splice({.first = std::move(tunnel), .second = std::move(near)});
    }));
  });
  const auto opener = make_tunnel_opener({.tls = {.ca_pem = ca.certificate_pem}});
  const auto used = [] {
    const struct mallinfo2 now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const TunnelRequest request{
      .url = "https://" + server->address() + "/", .headers = {}, .protocol = "x"};
  clients.push_back(*opener->connect(patience(), request));
  const std::size_t before = used();
  for (std::size_t i = 1; i < kPairs; ++i) clients.push_back(*opener->connect(patience(), request));
  ASSERT_TRUE(eventually([&] { return splicer.pairs() == kPairs; }));
  const double kib = static_cast<double>(used() - before) / 1024 / (kPairs - 1);
  std::printf("one idle pair with TLS, its client and its target in the test: %.1f KiB\n", kib);
  EXPECT_LT(kib, 60.0);
}

TEST(Splicer, ThousandIdlePairsAreCheap) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  constexpr std::size_t kPairs = 1000;
  if (files.rlim_cur < 4 * kPairs + 100) GTEST_SKIP() << "too few descriptors";
  Splicer splicer({});
  std::vector<std::unique_ptr<Spliced>> pairs;
  pairs.reserve(kPairs);
  const auto used = [] {
    const struct mallinfo2 now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = used();
  for (std::size_t i = 0; i < kPairs; ++i) pairs.push_back(std::make_unique<Spliced>(splicer));
  for (auto& pair : pairs) {
    ASSERT_TRUE(pair->left->write(patience(), std::string(20'000, 'x')).ok());
    ASSERT_EQ(read_exactly(*pair->right, 20'000).size(), 20'000u);
  }
  const double kib = static_cast<double>(used() - before) / 1024 / kPairs;
  RecordProperty("kib_per_pair", std::to_string(kib));
  std::printf("one idle pair and its two test ends: %.2f KiB\n", kib);
  EXPECT_LT(kib, 8.0);
  EXPECT_EQ(splicer.pairs(), kPairs);
}

}  // namespace splicer_test
}  // namespace varda::net
