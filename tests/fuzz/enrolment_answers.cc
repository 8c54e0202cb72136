// The inputs of an agent's identity: answers of gateways, and files on the agent's disk.
//
// Input: first byte even: a gateway's answers, one line "STATUS RETRY-AFTER BODY" each. Odd: the
// files key.pem, cert.pem, ca.pem, separated by a 0 byte. In both, @key, @cert, @ca and the other
// names of kWords stand for texts of this node or another node.
//
// A certificate becomes the identity only if it belongs to this node, its key, and the authority in
// the join token. It is then on the disk and reads back. A bad answer leaves the disk without a
// certificate. The next attempt has a time.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "agent/identity/identity.h"
#include "artifact/testing/manual_clock.h"
#include "base/check.h"
#include "base/log.h"
#include "codec/json.h"
#include "input.h"
#include "net/certificates.h"
#include "os/testing/memory_file_system.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using namespace std::chrono_literals;

constexpr const char* kDirectory = "/data/identity";
constexpr const char* kNode = "line7";

struct Placeholders {
  Placeholders() {
    key = net::make_key().value();
    const net::KeyPair ca = net::make_ca("edge", 24h).value(),
                       other_ca = net::make_ca("edge", 24h).value();
    const auto sign = [](const net::KeyPair& by, const std::string& of, const std::string& name,
                         const std::string& organization) {
      net::CertificateRequest request;
      request.common_name = name;
      request.organizations = {organization};
      request.peer = true;
      return net::sign_csr(by, net::make_csr(of, "x").value(), request).value();
    };
    ca_sha256 = net::certificate_facts(ca.certificate_pem).value().sha256;
    of = {{"@key", key},
          {"@ca", ca.certificate_pem},
          {"@ca2", other_ca.certificate_pem},
          {"@cert", sign(ca, key, kNode, "system:nodes")},
          {"@cert2", sign(other_ca, key, kNode, "system:nodes")},
          {"@node2", sign(ca, key, "line8", "system:nodes")},
          {"@admin", sign(ca, key, kNode, "system:masters")},
          {"@key2", net::make_key().value()},
          {"@thief", sign(ca, net::make_key().value(), kNode, "system:nodes")}};
  }
  // Longer names first, so that @ca2 is not read as @ca.
  std::string filled(std::string text) const {
    for (auto entry = of.rbegin(); entry != of.rend(); ++entry) {
      for (std::size_t at = 0; (at = text.find(entry->first, at)) != std::string::npos;
           at += entry->second.size())
        text.replace(at, entry->first.size(), entry->second);
      if (text.size() > 64 << 10) text.resize(64 << 10);
    }
    return text;
  }
  std::string key, ca_sha256;
  std::map<std::string, std::string> of;
};

const Placeholders& placeholders() {
  static const Placeholders made;
  return made;
}

// In JSON a line break is \n.
std::string in_json(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

class Gateway final : public net::HttpClient {
 public:
  explicit Gateway(fuzz::Input& input) : input_(input) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest request) override {
    CHECK(request.url == "https://gateway.example/gateway/v1/enroll" ||
          request.url == "https://gateway.example/gateway/v1/renew");
    CHECK(request.body.find("PRIVATE") == std::string::npos);
    if (input_.rest().empty()) return Error(Code::kUnavailable, "no route");
    class Body final : public net::BodyReader {
     public:
      explicit Body(std::string text) : text_(std::move(text)) {}
      Result<std::optional<std::string>> read() override {
        if (text_.empty()) return std::optional<std::string>();
        return std::optional(std::exchange(text_, {}));
      }

     private:
      std::string text_;
    };
    net::ClientResponse out;
    out.status = std::atoi(std::string(input_.until(' ')).c_str());
    if (const std::string_view after = input_.until(' '); !after.empty())
      out.headers.add("Retry-After", std::string(after));
    out.body = std::make_unique<Body>(in_json(placeholders().filled(std::string(input_.line()))));
    return out;
  }

 private:
  fuzz::Input& input_;
};

class Shared final : public net::HttpClient {
 public:
  explicit Shared(net::HttpClient& to) : to_(to) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    return to_.send(ctx, std::move(request));
  }

 private:
  net::HttpClient& to_;
};

agent::identity::Options options(net::HttpClient& gateway) {
  agent::identity::Options out;
  out.node_name = kNode;
  out.gateway = "https://gateway.example";
  out.directory = kDirectory;
  out.join_token = [] {
    return Result<std::string>("varda-join.0123456789ab." + std::string(64, 'a') + "." +
                               placeholders().ca_sha256);
  };
  out.connect = [&gateway](const net::TlsClient&) { return std::make_unique<Shared>(gateway); };
  return out;
}

std::string file(os::FileSystem& fs, const char* name) {
  return os::read_file(fs, os::Path(kDirectory) / name).value_or("");
}

void check_identity(const agent::identity::Identity& identity, os::FileSystem& fs) {
  const auto facts = identity.facts();
  CHECK(facts.has_value() == !file(fs, "cert.pem").empty());
  if (!facts) return;
  CHECK(facts->common_name == kNode);
  CHECK(facts->key_sha256 == net::key_sha256(file(fs, "key.pem")).value());
  CHECK(net::certificate_facts(file(fs, "cert.pem")).value().sha256 == facts->sha256);
  CHECK(net::certificate_facts(file(fs, "ca.pem")).ok());
}

void take_answers(fuzz::Input& input) {
  os::testing::MemoryFileSystem fs;
  artifact::testing::ManualClock clock;
  clock.set_wall(std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  const auto rng = seeded_rng(1);
  CHECK(fs.make_directories(kDirectory, 0700).ok());
  CHECK(os::write_file_atomically(fs, os::Path(kDirectory) / "key.pem", placeholders().key, 0600)
            .ok());
  Gateway gateway(input);
  auto identity = agent::identity::Identity::open(options(gateway), fs, clock, *rng).value();
  bool enrolled = false;
  for (int i = 0; i < 4 && !input.rest().empty(); ++i) {
    const Status status = identity->step(Context());
    if (!enrolled && status.ok()) {
      enrolled = true;
      CHECK(net::certificate_facts(file(fs, "ca.pem")).value().sha256 == placeholders().ca_sha256);
    }
    if (enrolled)
      CHECK(identity->facts()->organizations == std::vector<std::string>{"system:nodes"});
    CHECK(identity->facts().has_value() == enrolled);
    check_identity(*identity, fs);
    CHECK(file(fs, "key.pem") == placeholders().key);
    if (!status.ok()) {
      const auto wait = identity->due() - clock.now();
      CHECK(wait > 0s && wait <= 75min);
      clock.advance(wait);
    }
  }
  const auto again = agent::identity::Identity::open(options(gateway), fs, clock, *rng);
  CHECK(again.ok() && (*again)->facts().has_value() == enrolled);
  if (enrolled) CHECK((*again)->facts()->sha256 == identity->facts()->sha256);
}

void read_disk(fuzz::Input& input) {
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories(kDirectory, 0700).ok());
  std::map<std::string, std::string> put;
  for (const char* name : {"key.pem", "cert.pem", "ca.pem"}) {
    const std::string text = placeholders().filled(std::string(input.until('\0')));
    if (text.empty()) continue;
    put[name] = text;
    CHECK(os::write_file_atomically(fs, os::Path(kDirectory) / name, text, 0600).ok());
  }
  Gateway gateway(input);
  const auto identity = agent::identity::Identity::open(options(gateway), fs);
  for (const auto& [name, text] : put)
    CHECK(file(fs, name.c_str()) == text);  // an operator must inspect files that do not fit
  if (!identity.ok()) {
    CHECK(identity.error().code() == Code::kCorrupt || identity.error().code() == Code::kInvalid);
    CHECK(identity.error().message().find("PRIVATE") == std::string::npos);
    return;
  }
  check_identity(**identity, fs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    log::configure(log::Format::kText, log::Level::kError);
    return true;
  }();
  (void)quiet;
  fuzz::Input input(data, size);
  if (input.byte() % 2 == 0) {
    take_answers(input);
  } else {
    read_disk(input);
  }
  return 0;
}
