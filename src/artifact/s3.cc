#include "artifact/s3.h"

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "codec/digest.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kDefaultRegion = "us-east-1";

std::string region_of(const Credentials& credentials) {
  return credentials.region.empty() ? std::string(kDefaultRegion) : credentials.region;
}

std::string_view bytes_of(const codec::Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

}  // namespace

std::string aws_encode_path(std::string_view path) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  constexpr std::size_t kBlock = 64;
  std::string block(key);
  if (block.size() > kBlock) block = bytes_of(codec::Sha256::of(key));
  block.resize(kBlock, '\0');
  std::string inner = block, outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  inner += text;
  outer += bytes_of(codec::Sha256::of(inner));
  return std::string(bytes_of(codec::Sha256::of(outer)));
}

AwsKey aws_key(const Credentials& credentials) {
  return {.id = credentials.access_key_id,
          .secret = credentials.secret_access_key,
          .session_token = credentials.session_token,
          .region = region_of(credentials)};
}

void aws_sign(net::ClientRequest& request, std::string_view host, std::string_view target,
              const AwsKey& key, WallTime now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  const std::string date(stamp, 8), time(stamp);
  const std::string payload = codec::Sha256::of(request.body).hex();
  const std::size_t mark = std::min(target.find('?'), target.size());
  const std::string path(target.substr(0, mark));
  const std::string query(target.substr(std::min(mark + 1, target.size())));

  request.headers.set("X-Amz-Date", time);
  request.headers.set("X-Amz-Content-Sha256", payload);
  if (!key.session_token.empty()) request.headers.set("X-Amz-Security-Token", key.session_token);

  std::vector<std::pair<std::string, std::string>> fields{{"host", std::string(host)}};
  for (const char* name :
       {"If-Range", "Range", "X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Security-Token"}) {
    const auto value = request.headers.find(name);
    if (!value) continue;
    fields.emplace_back(lower(name), std::string(*value));
  }
  std::sort(fields.begin(), fields.end());
  std::string headers, names;
  for (const auto& [name, value] : fields) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      request.method + "\n" + path + "\n" + query + "\n" + headers + "\n" + names + "\n" + payload;
  const std::string scope = date + "/" + key.region + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + codec::Sha256::of(canonical).hex();
  std::string signing = hmac_sha256("AWS4" + key.secret, date);
  for (const std::string_view part :
       {std::string_view(key.region), std::string_view("s3"), std::string_view("aws4_request")})
    signing = hmac_sha256(signing, part);
  request.headers.set("Authorization", "AWS4-HMAC-SHA256 Credential=" + key.id + "/" + scope +
                                           ",SignedHeaders=" + names + ",Signature=" +
                                           codec::hex(hmac_sha256(signing, to_sign)));
}

Result<net::Url> s3_address(const net::Url& url, const Credentials& credentials) {
  if (url.host.empty() || url.port != 0 || !url.user.empty())
    return Error(Code::kInvalid, "an s3 URL is s3://BUCKET/KEY");
  if (url.target.find('?') != std::string::npos)
    return Error(Code::kInvalid, "an s3 URL has no query; write ? as %3F");
  TRY(const std::string key, net::percent_decode(std::string_view(url.target).substr(1)));
  if (key.empty()) return Error(Code::kInvalid, "an s3 URL is s3://BUCKET/KEY");
  const bool own_host = credentials.endpoint.empty() && url.host.find('.') == std::string::npos;
  std::string endpoint = credentials.endpoint;
  // AWS's wildcard certificate does not cover bucket names with dots.
  if (endpoint.empty())
    endpoint = "https://" + (own_host ? url.host + "." : std::string()) + "s3." +
               region_of(credentials) + ".amazonaws.com";
  TRY(net::Url address, net::Url::parse(endpoint).context("AWS_ENDPOINT_URL"));
  if (address.scheme != "http" && address.scheme != "https")
    return Error(Code::kInvalid, "AWS_ENDPOINT_URL: must be an http or https URL");
  address.target = (own_host ? "/" : "/" + url.host + "/") + aws_encode_path(key);
  return address;
}

}  // namespace varda::artifact
