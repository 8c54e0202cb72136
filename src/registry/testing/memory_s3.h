// An S3 server in memory, for tests: objects, multipart uploads, lists in pages of two, faults.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "codec/digest.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::registry::testing {

/// Thread-safe. Serves the bucket "models" path-style.
class MemoryS3 {
 public:
  enum class Fault {
    kBefore,  // the request has no effect
    kAfter,   // the request has its effect, and only the answer is lost
  };
  /// The request with that number (1: the first one of all) fails; with `lasting`, also all later
  /// ones.
  void fail_at(std::uint64_t number, Fault fault, bool lasting) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    fault_at_ = number;
    fault_ = fault;
    lasting_ = lasting;
  }
  void heal() EXCLUDES(mutex_) { fail_at(0, Fault::kBefore, false); }
  std::uint64_t requests() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return requests_;
  }
  std::map<std::string, std::string> objects() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return objects_;
  }
  void set_object(const std::string& key, std::string bytes) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    objects_[key] = std::move(bytes);
  }
  void remove_object(const std::string& key) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    objects_.erase(key);
  }
  std::size_t uploads() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return uploads_.size();
  }
  void abort_uploads() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    uploads_.clear();
  }
  /// All but the last part of an upload need this many bytes.
  void set_part_bytes_min(std::size_t bytes) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    part_bytes_min_ = bytes;
  }
  /// Called before each request, without locks; may block.
  void on_request(std::function<void(const net::Request&)> hook) { hook_ = std::move(hook); }
  /// The state, as another server that never fails.
  void copy_to(MemoryS3& other) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const MutexLock other_lock(other.mutex_);
    other.objects_ = objects_;
    other.uploads_ = uploads_;
    other.ids_ = ids_;
    other.part_bytes_min_ = part_bytes_min_;
  }

  /// Outlived by this.
  net::Handler handler() {
    return net::inline_handler([this](const net::Request& request) {
      if (hook_) hook_(request);
      return answer(request);
    });
  }

 private:
  struct Upload {
    std::string key;
    std::map<int, std::string> parts;
  };
  static constexpr const char* kTime = "2026-03-01T10:00:00.000Z";

  static net::Response refuse(int status, const std::string& code) {
    return {.status = status, .headers = {}, .body = "<Error><Code>" + code + "</Code></Error>"};
  }
  static net::Response xml(const std::string& body) {
    return {.status = 200, .headers = {}, .body = "<?xml version=\"1.0\"?>\n" + body};
  }
  static std::string tag_of(const std::string& bytes) {
    return "\"" + codec::Sha256::of(bytes).hex().substr(0, 32) + "\"";
  }
  static std::string tag_text(const std::string& bytes) {
    return "&quot;" + codec::Sha256::of(bytes).hex().substr(0, 32) + "&quot;";
  }

  net::Response answer(const net::Request& request) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++requests_;
    const bool fails =
        fault_at_ > 0 && (lasting_ ? requests_ >= fault_at_ : requests_ == fault_at_);
    if (fails && fault_ == Fault::kBefore) return refuse(500, "InternalError");
    net::Response out = serve(request);
    return fails ? refuse(503, "SlowDown") : std::move(out);
  }

  net::Response serve(const net::Request& request) REQUIRES(mutex_) {
    const std::string path = net::percent_decode(request.path()).value();
    const net::Query query = net::Query::parse(request.query());
    if (request.headers.find("X-Amz-Content-Sha256") != codec::Sha256::of(request.body).hex())
      return refuse(400, "XAmzContentSHA256Mismatch");
    constexpr std::string_view kBucket = "/models/";
    if (!path.starts_with(kBucket)) return refuse(404, "NoSuchBucket");
    const std::string key = path.substr(kBucket.size());
    if (key.empty()) return list(query);
    if (query.find("uploads")) {
      const std::string id = "upload/" + std::to_string(++ids_) + "+";
      uploads_[id].key = key;
      return xml("<InitiateMultipartUploadResult><UploadId>" + id +
                 "</UploadId></InitiateMultipartUploadResult>");
    }
    if (const auto id = query.find("uploadId")) return multipart(request, query, std::string(*id));
    if (request.method == "PUT") {
      objects_[key] = request.body;
      return {.status = 200, .headers = {{"ETag", tag_of(request.body)}}};
    }
    if (request.method == "DELETE") {
      objects_.erase(key);
      return {.status = 204};
    }
    const auto object = objects_.find(key);
    if (object == objects_.end()) return refuse(404, "NoSuchKey");
    const std::string range(request.headers.find("Range").value_or(""));  // "bytes=1-9"
    const std::size_t dash = range.find('-');
    const auto first = parse_integer<std::size_t>(range.substr(6, dash - 6)).value();
    const auto last = parse_integer<std::size_t>(range.substr(dash + 1)).value();
    if (first >= object->second.size()) return refuse(416, "InvalidRange");
    return {.status = 206, .headers = {}, .body = object->second.substr(first, last - first + 1)};
  }

  net::Response list(const net::Query& query) REQUIRES(mutex_) {
    const std::string prefix(query.get("prefix")), after(query.get("continuation-token"));
    std::string items, last;
    std::size_t count = 0;
    bool more = false;
    for (const auto& [key, bytes] : objects_) {
      if (!key.starts_with(prefix) || key <= after) continue;
      more = count == 2;
      if (more) break;
      ++count;
      last = key;
      items += "<Contents><Key>" + key + "</Key><LastModified>" + kTime + "</LastModified><Size>" +
               std::to_string(bytes.size()) + "</Size></Contents>";
    }
    return xml("<ListBucketResult><IsTruncated>" + std::string(more ? "true" : "false") +
               "</IsTruncated>" +
               (more ? "<NextContinuationToken>" + last + "</NextContinuationToken>" : "") + items +
               "</ListBucketResult>");
  }

  net::Response multipart(const net::Request& request, const net::Query& query,
                          const std::string& id) REQUIRES(mutex_) {
    const auto upload = uploads_.find(id);
    if (upload == uploads_.end()) return refuse(404, "NoSuchUpload");
    auto& parts = upload->second.parts;
    if (request.method == "PUT") {
      parts[parse_integer<int>(query.get("partNumber")).value()] = request.body;
      return {.status = 200, .headers = {{"ETag", tag_of(request.body)}}};
    }
    if (request.method == "DELETE") {
      uploads_.erase(upload);
      return {.status = 204};
    }
    if (request.method == "GET") {
      const int after = parse_integer<int>(query.get("part-number-marker")).value_or(0);
      std::string items;
      int count = 0;
      bool more = false;
      for (const auto& [number, bytes] : parts) {
        if (number <= after) continue;
        more = count == 2;
        if (more) break;
        ++count;
        items += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>" +
                 tag_text(bytes) + "</ETag><LastModified>" + kTime + "</LastModified><Size>" +
                 std::to_string(bytes.size()) + "</Size></Part>";
      }
      return xml("<ListPartsResult><IsTruncated>" + std::string(more ? "true" : "false") +
                 "</IsTruncated>" + items + "</ListPartsResult>");
    }
    // The parts must be those that the request names.
    std::string named = "<CompleteMultipartUpload>", whole;
    for (const auto& [number, bytes] : parts) {
      named += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>" +
               tag_of(bytes) + "</ETag></Part>";
      if (number != parts.rbegin()->first && bytes.size() < part_bytes_min_)
        return refuse(400, "EntityTooSmall");
      whole += bytes;
    }
    if (request.body != named + "</CompleteMultipartUpload>") return refuse(400, "InvalidPart");
    objects_[upload->second.key] = whole;
    uploads_.erase(upload);
    return xml("<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
  }

  std::function<void(const net::Request&)> hook_;  // set before the first request
  Mutex mutex_;
  std::map<std::string, std::string> objects_ GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ GUARDED_BY(mutex_);
  std::uint64_t requests_ GUARDED_BY(mutex_) = 0, fault_at_ GUARDED_BY(mutex_) = 0;
  std::uint64_t ids_ GUARDED_BY(mutex_) = 0;
  std::size_t part_bytes_min_ GUARDED_BY(mutex_) = 0;
  Fault fault_ GUARDED_BY(mutex_) = Fault::kBefore;
  bool lasting_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::registry::testing
