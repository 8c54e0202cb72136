// Nodes that replicate files: a node's answers to peers' requests, and its handling of peers'
// answers.
//
// Input, by its first byte:
//   f, a   a request for files or for an archive: its target, the header Range, the name in the
//          certificate, one per line
//   s      a peer's answers to requests for a file, one per line, in the format of next_answer()
//   i      a peer's answer to a request for a snapshot: its body
//
// Only shared files are given, with exactly the bytes that Content-Range announces. Of a peer's
// answers, only requested bytes are used.
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "base/check.h"
#include "input.h"
#include "net/url.h"
#include "os/testing/memory_file_system.h"
#include "replica/archives.h"
#include "replica/peer.h"
#include "replica/scan.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

constexpr const char* kKey = "datasets.edgeai.io/default/faces";
constexpr std::string_view kSecret = "not shared with this node";
constexpr const char* kSecretKey = "models.edgeai.io/default/hidden";
const std::string kNode = "edge1", kOther = "edge2";  // the secret is shared with the other node

// Bytes that show their own position.
std::string content(std::size_t size) {
  std::string out;
  while (out.size() < size) out += std::to_string(out.size()) + " ";
  out.resize(size);
  return out;
}

const std::map<std::string, std::string>& files() {
  static const std::map<std::string, std::string> files{
      {"a", content(150'000)}, {"sub/b c.txt", "1,2\n"}, {"sub/e", ""}};
  return files;
}

struct Answer {
  std::string node;
  int status = 0;
  net::Headers headers;
  std::string body;
};

Answer send(const net::Handler& handler, fuzz::Input& input) {
  net::Request request;
  request.target = input.line();
  if (const std::string_view range = input.line(); !range.empty())
    request.headers.add("Range", std::string(range));
  request.peer = {.address = "192.0.2.1:1", .certificate_common_name = std::string(input.line())};
  if (const std::string_view method = input.line(); !method.empty()) request.method = method;
  const std::string node = request.peer.certificate_common_name;
  std::optional<net::Response> got;
  handler(std::move(request),
          net::Responder([&](net::Response response) { got = std::move(response); }));
  CHECK(got.has_value());
  Answer answer{.node = node, .status = got->status, .headers = got->headers, .body = got->body};
  if (got->stream) {
    answer.body.clear();
    while (const auto piece = got->stream->read()) {
      CHECK(!piece->empty());  // a file always has bytes or its end
      answer.body += *piece;
    }
  }
  // A refusal may name the node.
  if (answer.status < 400 && node != kOther) CHECK(answer.body.find(kSecret) == std::string::npos);
  return answer;
}

struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};

ContentRange content_range(const Answer& answer) {
  const std::string text(answer.headers.find("Content-Range").value());
  ContentRange out;
  const char* at = text.c_str();
  const char* const end = at + text.size();
  const auto number = [&](std::string_view before, std::uint64_t& value) {
    CHECK(std::string_view(at).starts_with(before));
    const auto [next, error] = std::from_chars(at + before.size(), end, value);
    CHECK(error == std::errc());
    at = next;
  };
  number("bytes ", out.first);
  number("-", out.last);
  number("/", out.total);
  CHECK(at == end && out.first <= out.last && out.last < out.total);
  return out;
}

// The temporary directory of this process.
struct Disk {
  Disk() {
    std::string name =
        (std::filesystem::temp_directory_path() / "varda-fuzz-peers-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    root = name;
    for (const auto& [path, bytes] : files()) {
      std::filesystem::create_directories((root / "data" / path).parent_path());
      std::ofstream(root / "data" / path, std::ios::binary) << bytes;
    }
    std::ofstream(root / "secret") << kSecret;
    std::filesystem::create_symlink(root, root / "data" / "up");
    std::filesystem::create_symlink(root / "secret", root / "data" / "sub" / "link");
  }
  ~Disk() { std::filesystem::remove_all(root); }
  os::Path root;
};

net::Handler shares_handler() {
  static Disk disk;
  static replica::Shares shares([] { return os::open_readable_tree({disk.root}); });
  static const bool shared = [] {
    const auto tree = os::open_readable_tree({disk.root}).value();
    const auto taken =
        replica::take_snapshot(Context(), *tree, disk.root / "data", nullptr, {}, 1024).value();
    CHECK(taken.snapshot.files.size() == files().size());
    replica::Shares::Share share{.path = disk.root / "data", .nodes = {kNode}, .snapshots = {}};
    share.snapshots.emplace_back(taken.snapshot.id().hex(),
                                 std::make_shared<const std::string>(taken.snapshot.encode()));
    replica::Shares::Share hidden{.path = disk.root / "secret", .nodes = {kOther}, .snapshots = {}};
    shares.set({{kKey, std::move(share)}, {kSecretKey, std::move(hidden)}});
    return true;
  }();
  CHECK(shared);
  return shares.handler();
}

void read_files(fuzz::Input& input) {
  const std::string target(input.rest().substr(0, input.rest().find('\n')));
  const Answer answer = send(shares_handler(), input);
  CHECK(answer.status == 200 || answer.status == 206 ||
        (answer.status >= 400 && answer.status <= 503));
  if (answer.status >= 400) return;
  const std::size_t question = target.find('?');
  const net::Query query = net::Query::parse(
      question == std::string::npos ? "" : std::string_view(target).substr(question + 1));
  if (query.get("key") == kSecretKey) {
    CHECK(answer.node == kOther);
    return;
  }
  CHECK(query.get("key") == kKey && answer.node == kNode);
  if (answer.status == 200) {
    CHECK(replica::Snapshot::decode(answer.body).value().files.size() == files().size());
    return;
  }
  const std::string& bytes = files().at(std::string(query.get("path")));
  const ContentRange range = content_range(answer);
  CHECK(range.total == bytes.size());
  CHECK(answer.body == std::string_view(bytes).substr(range.first, range.last - range.first + 1));
}

// One complete archive, one incomplete, and one that lacks only the size.
void read_archive(fuzz::Input& input) {
  static os::testing::MemoryFileSystem fs;
  static const std::string bytes = content(200'000);
  static const auto digest = [](const char* name) { return codec::Sha256::of(name); };
  static replica::Archives archives(
      [](const codec::Sha256& wanted) -> std::optional<replica::Archives::Content> {
        if (wanted == digest("coming")) return std::nullopt;
        if (wanted == digest("hidden"))
          return replica::Archives::Content{.file = fs.open("/hidden", os::Open::kRead, 0).value(),
                                            .bytes = kSecret.size(),
                                            .total = kSecret.size()};
        replica::Archives::Content out{.file = fs.open("/archive", os::Open::kRead, 0).value(),
                                       .bytes = bytes.size(),
                                       .total = bytes.size()};
        if (wanted == digest("partly")) out.total += 1000;
        if (wanted == digest("unsized")) out.total = 0;
        return out;
      });
  static const bool shared = [] {
    CHECK(os::write_file_atomically(fs, "/archive", bytes).ok());
    CHECK(os::write_file_atomically(fs, "/hidden", std::string(kSecret)).ok());
    std::map<codec::Sha256, replica::Archives::Share> shares;
    for (const char* name : {"coming", "partly", "unsized", "whole"})
      shares[digest(name)] = {.nodes = {kNode}, .coming = true};
    shares[digest("hidden")] = {.nodes = {kOther}};
    archives.set(std::move(shares));
    return true;
  }();
  CHECK(shared);
  const Answer answer = send(archives.handler(), input);
  if (answer.status != 206) {
    CHECK(answer.status >= 400 && answer.status <= 503);
    return;
  }
  const ContentRange range = content_range(answer);
  if (answer.node == kOther) {
    CHECK(answer.body ==
          std::string_view(kSecret).substr(range.first, range.last - range.first + 1));
    return;
  }
  CHECK(answer.node == kNode);
  CHECK(range.total == bytes.size() || range.total == bytes.size() + 1000);
  CHECK(range.last < bytes.size());
  CHECK(answer.body == std::string_view(bytes).substr(range.first, range.last - range.first + 1));
}

class Pieces final : public net::BodyReader {
 public:
  Pieces(std::string body, std::size_t piece, bool breaks)
      : body_(std::move(body)), piece_(piece), breaks_(breaks) {}
  Result<std::optional<std::string>> read() override {
    if (body_.empty() && breaks_) return Error(Code::kUnavailable, "the connection broke");
    if (body_.empty()) return std::optional<std::string>();
    std::string out = body_.substr(0, piece_);
    body_.erase(0, piece_);
    return std::optional(std::move(out));
  }

 private:
  std::string body_;
  const std::size_t piece_;
  const bool breaks_;
};

/// A peer that answers from the input.
class Script final : public net::HttpClient {
 public:
  explicit Script(fuzz::Input& input) : input_(input) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest request) override {
    CHECK(request.url.starts_with("https://192.0.2.7:10445/replica/v1/"));
    ++requests;
    if (input_.rest().empty()) return Error(Code::kUnavailable, "no route");
    return next_answer(request.headers.find("Range").value_or(""));
  }
  int requests = 0;

 private:
  // "STATUS KIND N TEXT". KIND r: Content-Range is the requested range; otherwise TEXT is the
  // Content-Range. The body has N/8 of the requested bytes, in pieces of STATUS bytes.
  net::ClientResponse next_answer(std::string_view requested_range) {
    net::ClientResponse out;
    out.status = std::atoi(std::string(input_.until(' ')).c_str());
    const std::string_view kind = input_.until(' ');
    const auto eighths = static_cast<std::size_t>(
        std::clamp(std::atoi(std::string(input_.until(' ')).c_str()), 0, 16));
    const std::string text(input_.line());
    std::size_t first = 0, last = 0;
    CHECK(std::sscanf(std::string(requested_range).c_str(), "bytes=%zu-%zu", &first, &last) == 2);
    CHECK(first <= last && last < files().at("a").size());
    const std::string range =
        "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/150000";
    out.headers.add("Content-Range", kind == "r" ? range : text);
    const std::size_t bytes = (last - first + 1) * eighths / 8;
    std::string body = files().at("a").substr(first, bytes);
    body.resize(bytes, '!');
    out.body = std::make_unique<Pieces>(
        std::move(body), static_cast<std::size_t>(std::clamp(out.status, 1, 100'000)),
        text == "break");
    return out;
  }

  fuzz::Input& input_;
};

void read_from_peers(fuzz::Input& input) {
  const std::uint64_t offset = input.byte() * 500u, length = input.byte() * 80u;
  Script script(input);
  const replica::Peer peer{.http = &script, .url = "https://192.0.2.7:10445"};
  replica::PeerSource source({peer, peer, peer}, kKey);
  std::string got;
  const Status status = source.read(Context(), {.path = "a", .size = 150'000, .blocks = {}}, offset,
                                    length, [&](std::string_view piece) {
                                      got += piece;
                                      CHECK(got.size() <= length);
                                      return Status();
                                    });
  CHECK(script.requests <= 3);
  CHECK(status.ok() == (got.size() == length));
  // This peer sends correct bytes wherever it sends bytes of the range.
  CHECK(got == std::string_view(files().at("a")).substr(offset, got.size()));
}

void take_snapshot_of_peer(std::string body) {
  class Fixed final : public net::HttpClient {
   public:
    explicit Fixed(std::string body) : body_(std::move(body)) {}
    Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
      net::ClientResponse out;
      out.status = 200;
      out.body = std::make_unique<Pieces>(body_, 1000, false);
      return out;
    }

   private:
    const std::string body_;
  };
  Fixed http(body);
  const replica::Peer peer{.http = &http, .url = "https://192.0.2.7:10445"};
  const std::string id = codec::Sha256::of(body).hex();
  CHECK(!replica::fetch_snapshot(Context(), peer, kKey, std::string(64, '0'), {}).ok());
  const auto named = replica::fetch_snapshot(Context(), peer, kKey, id, {}),
             newest = replica::fetch_snapshot(Context(), peer, kKey, "", {});
  CHECK(named.ok() == newest.ok());
  if (!named.ok()) return;
  CHECK(*named == *newest && named->id().hex() == id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'f':
      read_files(input);
      break;
    case 'a':
      read_archive(input);
      break;
    case 's':
      read_from_peers(input);
      break;
    default:
      take_snapshot_of_peer(std::string(input.rest()));
  }
  return 0;
}
