// The endpoints for workers on this machine, and token files on failing disks.
#include "agent/workers/ports.h"

#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/workers/tokens.h"
#include "net/client.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::workers {
namespace {

/// A raw client that sends as little as the test needs.
class Raw {
 public:
  explicit Raw(const os::Path& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    CHECK(path.string().copy(address.sun_path, sizeof(address.sun_path) - 1) ==
          path.string().size());
    CHECK(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  }
  Raw(Raw&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Raw& operator=(Raw&&) = delete;
  ~Raw() {
    if (fd_ >= 0) ::close(fd_);
  }
  void get(const std::string& path) const {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    CHECK(::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  }
  std::string all() const {
    std::string out;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::read(fd_, bytes, sizeof(bytes))) > 0;)
      out.append(bytes, count);
    return out;
  }

 private:
  int fd_;
};

class PortsTest : public ::testing::Test {
 protected:
  PortsTest() {
    std::string pattern = ::testing::TempDir() + "varda-ports-XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    directory = pattern;
  }
  ~PortsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  Result<std::unique_ptr<Ports>> open(const std::string& listen = "", const char* body = "here") {
    return Ports::open(
        {.socket = directory / "worker/worker.sock",
         .listen = listen,
         .url_file = directory / "worker/worker.url"},
        net::inline_handler([body](const net::Request&) { return net::Response{.body = body}; }),
        fs);
  }
  os::Path socket() const { return directory / "worker/worker.sock"; }
  std::string body_at(const std::string& url) {
    const auto client = net::make_client(url.empty() ? net::ClientOptions{.unix_socket = socket()}
                                                     : net::ClientOptions{});
    const auto answer =
        client->call(Context::background(), {.url = url.empty() ? "http://localhost/" : url + "/"});
    return answer.ok() ? answer->body : "";
  }
  os::Path directory;
  os::FileSystem& fs = os::real_file_system();
};

TEST_F(PortsTest, SocketIsOpenToUserAndGroupOnly) {
  const auto ports = open().value();
  EXPECT_EQ(fs.stat(socket()).value()->mode, 0660U);
  EXPECT_EQ(body_at(""), "here");
  EXPECT_EQ(ports->url(), "");
  EXPECT_FALSE(fs.stat(directory / "worker/worker.url").value().has_value());
}

TEST_F(PortsTest, DirectoryModeIgnoresUmaskAndChosenModeStays) {
  const mode_t before = ::umask(0077);
  auto ports = open();
  ::umask(before);
  EXPECT_EQ(fs.stat(directory / "worker").value()->mode, 0750U);
  ASSERT_TRUE(fs.set_mode(directory / "worker", 0755).ok());
  ports->reset();
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(fs.stat(directory / "worker").value()->mode, 0755U) << "somebody chose it";
}

TEST_F(PortsTest, MountedDirectoryReachesNextAgent) {
  auto ports = open("", "first").value();
  const int mount = ::open((directory / "worker").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(mount, 0);
  ports.reset();
  ports = open("", "next").value();
  const auto client =
      net::make_client({.unix_socket = "/proc/self/fd/" + std::to_string(mount) + "/worker.sock"});
  const auto answer = client->call(Context::background(), {.url = "http://localhost/"});
  ::close(mount);
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "next");
}

TEST_F(PortsTest, EachAnswerClosesTheConnection) {
  const auto ports = open().value();
  const Raw worker(socket());
  worker.get("/");
  const std::string answer = worker.all();
  EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << answer;
}

TEST_F(PortsTest, SilentConnectionsAreClosedAndWaitingRequestIsNot) {
  std::mutex mutex;
  std::optional<net::Responder> waiting;
  const net::Handler handler = [&](const net::Request& request, net::Responder respond) {
    if (request.path() != "/wait") return respond({.body = "here"});
    const std::lock_guard lock(mutex);
    waiting.emplace(std::move(respond));
  };
  const auto ports =
      Ports::open({.socket = socket(), .silence_max = std::chrono::milliseconds(300)}, handler, fs)
          .value();
  const Raw waits(socket());
  waits.get("/wait");
  std::vector<Raw> idle;
  for (int i = 0; i < 192; ++i) idle.emplace_back(socket());
  // Long before the server closes silent connections.
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  const auto client = net::make_client({.unix_socket = socket()});
  const auto answer = client->call(ctx, {.url = "http://localhost/"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "here");
  const std::lock_guard lock(mutex);
  ASSERT_TRUE(waiting);
  (*waiting)({.body = "changed"});
  EXPECT_TRUE(waits.all().ends_with("changed"));
}

TEST_F(PortsTest, UrlFileExistsOnlyWithTcpPort) {
  {
    const auto ports = open("127.0.0.1:0").value();
    EXPECT_EQ(os::read_file(fs, directory / "worker/worker.url").value(), ports->url());
    EXPECT_EQ(body_at(ports->url()), "here");
    EXPECT_EQ(body_at(""), "here");
    const auto refused = open(ports->url().substr(7));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kUnavailable) << refused.error();
  }
  const auto ports = open().value();
  EXPECT_FALSE(fs.stat(directory / "worker/worker.url").value().has_value());
}

TEST_F(PortsTest, StaleSocketIsReplacedAndSocketInUseIsNot) {
  std::filesystem::create_directory(directory / "a");
  std::filesystem::create_directory(directory / "worker");
  const auto other =
      net::Server::create(
          {.listen = "unix:" + (directory / "a/s").string()},
          net::inline_handler([](const net::Request&) { return net::Response{.body = "other"}; }))
          .value();
  std::filesystem::rename(directory / "a/s",
                          directory / "worker/worker.sock");  // in use under this name
  {
    const auto ports = open();
    ASSERT_TRUE(ports.ok()) << "the node's models are served all the same";
    EXPECT_EQ(body_at(""), "other");
  }
  other->stop(std::chrono::milliseconds(0));  // leaves a stale socket behind
  ASSERT_TRUE(std::filesystem::exists(directory / "worker/worker.sock"));
  const auto ports = open().value();
  EXPECT_EQ(body_at(""), "here");
}

TEST_F(PortsTest, TooLongSocketPathIsSkipped) {
  directory /= std::string(120, 'd');
  std::filesystem::create_directory(directory);
  const auto ports = open("127.0.0.1:0");
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(body_at((*ports)->url()), "here");
  directory = directory.parent_path();
}

TEST_F(PortsTest, ListenOptionMustBeAddressAndPort) {
  for (const char* wrong : {"nonsense", "127.0.0.1", "unix:/tmp/x", "example.org:80"})
    EXPECT_EQ(open(wrong).error().code(), Code::kInvalid) << wrong;
}

TEST(WorkerTokens, DiskFailureLeavesWholeOrNoToken) {
  const Name caller{"default", "eval"};
  const auto rng = seeded_rng(1);
  for (int call = 1;; ++call) {
    os::testing::MemoryFileSystem fs;
    ASSERT_TRUE(fs.make_directories("/data", 0700).ok());
    Tokens tokens(fs, "/data/workers", *rng);
    ASSERT_TRUE(tokens.ensure({"default", "other"}, "j1").ok());
    const std::uint64_t before = fs.calls();
    fs.fail_nth(call, "", Error(Code::kExhausted, "disk full"));
    const auto token = tokens.ensure(caller, "j1");
    const bool reached = fs.calls() - before >= static_cast<std::uint64_t>(call);
    fs.on_call(nullptr);
    const auto file = os::read_file(fs, "/data/workers/default/eval/token");
    EXPECT_TRUE(!file.ok() || Tokens::is_of(*file, caller, "j1")) << "call " << call;
    const auto again = tokens.ensure(caller, "j1");
    ASSERT_TRUE(again.ok()) << "call " << call << ": " << again.error();
    EXPECT_EQ(file.value_or(*again), *again);
    EXPECT_EQ(token.value_or(*again), *again);
    EXPECT_EQ(fs.stat("/data/workers/default/eval/token").value()->mode, 0600U);
    EXPECT_EQ(fs.list("/data/workers/default/eval").value(),
              (std::vector<std::string>{"token", "work"}))
        << "call " << call;
    ASSERT_TRUE(tokens.keep_only({"default/eval"}).ok());
    EXPECT_EQ(fs.list("/data/workers/default").value(), std::vector<std::string>{"eval"});
    if (!reached) break;  // no call left to fail
    ASSERT_LT(call, 200);
  }
}

TEST(WorkerTokens, WorkspaceStaysForTheWorkerAndIsEmptyForTheNext) {
  os::testing::MemoryFileSystem fs;
  const Name caller{"default", "train"};
  const auto rng = seeded_rng(1);
  ASSERT_TRUE(fs.make_directories("/data", 0700).ok());
  Tokens tokens(fs, "/data/workers", *rng);
  ASSERT_TRUE(tokens.ensure(caller, "j1").ok());
  const os::Path checkpoint = "/data/workers/default/train/work/checkpoint";
  EXPECT_EQ(fs.stat(checkpoint.parent_path()).value()->mode, 0700U);
  ASSERT_TRUE(os::write_file_atomically(fs, checkpoint, "step 7", 0600).ok());
  ASSERT_TRUE(tokens.ensure(caller, "j1").ok());
  EXPECT_EQ(os::read_file(fs, checkpoint).value(), "step 7");
  ASSERT_TRUE(tokens.ensure(caller, "j2").ok());
  EXPECT_TRUE(fs.list(checkpoint.parent_path()).value().empty());
  ASSERT_TRUE(tokens.keep_only({}).ok());
  EXPECT_FALSE(fs.stat(checkpoint.parent_path()).value().has_value());
}

TEST(WorkerTokens, SymlinkIsReplacedByTokenFile) {
  os::testing::MemoryFileSystem fs;
  const Name caller{"default", "eval"};
  const auto rng = seeded_rng(1);
  ASSERT_TRUE(fs.make_directories("/data/workers/default/eval", 0700).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, "/data/shadow", "secret", 0600).ok());
  ASSERT_TRUE(fs.symlink("/data/shadow", "/data/workers/default/eval/token").ok());
  Tokens tokens(fs, "/data/workers", *rng);
  const auto token = tokens.ensure(caller, "j1");
  ASSERT_TRUE(token.ok()) << token.error();
  EXPECT_EQ(os::read_file(fs, "/data/shadow").value(), "secret");
  EXPECT_EQ(fs.stat("/data/workers/default/eval/token").value()->kind, os::FileKind::kFile);
}

}  // namespace
}  // namespace varda::agent::workers
