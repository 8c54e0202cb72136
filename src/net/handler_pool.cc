#include <deque>
#include <exception>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "net/server.h"

namespace varda::net {
namespace {

Response refusal(int status, std::string text) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.headers.add("Retry-After", "1");
  response.body = std::move(text);
  return response;
}

}  // namespace

struct HandlerPool::Impl {
  struct Job {
    std::shared_ptr<const SyncHandler> handler;
    Request request;
    Responder respond;
  };

  explicit Impl(Options o) : options(o) {}

  void submit(Job job) EXCLUDES(mutex) {
    int status = 0;
    {
      MutexLock lock(mutex);
      if (stopping) {
        status = 503;
      } else if (queue.size() >= options.queue_max) {
        status = 429;
      } else {
        queue.push_back(std::move(job));
      }
    }
    if (status == 0) return ready.notify_one();
    job.respond(refusal(status, status == 429 ? "too many requests are waiting\n"
                                              : "the server is shutting down\n"));
  }

  void work() EXCLUDES(mutex) {
    while (true) {
      mutex.lock();
      while (queue.empty() && !stopping) ready.wait(mutex);
      if (stopping) {
        mutex.unlock();
        return;
      }
      Job job = std::move(queue.front());
      queue.pop_front();
      mutex.unlock();
      try {
        job.respond((*job.handler)(job.request));
      } catch (const std::exception& e) {
        // The responder answers 500 on destruction.
        log::error(
            "a request handler threw",
            {{"method", job.request.method}, {"target", job.request.target}, {"what", e.what()}});
      }
    }
  }

  const Options options;
  Mutex mutex;
  CondVar ready;
  bool stopping GUARDED_BY(mutex) = false;
  std::deque<Job> queue GUARDED_BY(mutex);
  std::vector<std::thread> threads;
};

HandlerPool::HandlerPool(Options options) : impl_(std::make_shared<Impl>(options)) {
  for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->work(); });
  }
}

HandlerPool::~HandlerPool() {
  std::deque<Impl::Job> waiting;
  {
    MutexLock lock(impl_->mutex);
    impl_->stopping = true;
    waiting.swap(impl_->queue);
  }
  impl_->ready.notify_all();
  for (auto& job : waiting) job.respond(refusal(503, "the server is shutting down\n"));
  for (auto& thread : impl_->threads) thread.join();
}

Handler HandlerPool::wrap(SyncHandler handler) {
  return [impl = impl_, shared = std::make_shared<const SyncHandler>(std::move(handler))](
             Request request, Responder respond) {
    impl->submit({.handler = shared, .request = std::move(request), .respond = std::move(respond)});
  };
}

}  // namespace varda::net
