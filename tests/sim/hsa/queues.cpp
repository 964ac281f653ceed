// Signals and queues. Nothing consumes a queue: every packet counts as read, every wait as over.
#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// HIP reads the value through amd_signal_t itself, so its layout is kept.
std::atomic_ref<int64_t> value_of(hsa_signal_t signal) {
  return std::atomic_ref(const_cast<int64_t &>(reinterpret_cast<amd_signal_t *>(signal.handle)->value));
}

struct Queue {
  alignas(64) amd_queue_t queue{};
  void *packets = nullptr;
};

Queue *as_queue(const hsa_queue_t *queue) { return reinterpret_cast<Queue *>(const_cast<hsa_queue_t *>(queue)); }

std::atomic_ref<uint64_t> write_index(const hsa_queue_t *queue) {
  return std::atomic_ref(const_cast<uint64_t &>(as_queue(queue)->queue.write_dispatch_id));
}

} // namespace

extern "C" {

hsa_status_t hsa_signal_create(hsa_signal_value_t initial, uint32_t, const hsa_agent_t *, hsa_signal_t *signal) {
  auto *created = new (std::nothrow) amd_signal_t{};
  if (created == nullptr) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  created->value = initial;
  created->kind = AMD_SIGNAL_KIND_USER;
  signal->handle = reinterpret_cast<uint64_t>(created);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t initial, uint32_t consumers, const hsa_agent_t *list, uint64_t,
                                   hsa_signal_t *signal) {
  return hsa_signal_create(initial, consumers, list, signal);
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  delete reinterpret_cast<amd_signal_t *>(signal.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) { return value_of(signal).load(); }
void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) { value_of(signal).store(value); }
void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) { value_of(signal).store(value); }
void hsa_signal_silent_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) { value_of(signal).store(value); }
void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) { value_of(signal).fetch_add(value); }
void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) { value_of(signal).fetch_sub(value); }

hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t, hsa_signal_condition_t, hsa_signal_value_t, uint64_t,
                                             hsa_wait_state_t) {
  return 0;
}

hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t, hsa_signal_condition_t, hsa_signal_value_t,
                                          hsa_amd_signal_handler, void *) {
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t **value) {
  *value = &reinterpret_cast<amd_signal_t *>(signal.handle)->value;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_queue_create(hsa_agent_t, uint32_t size, hsa_queue_type32_t type,
                              void (*)(hsa_status_t, hsa_queue_t *, void *), void *, uint32_t, uint32_t,
                              hsa_queue_t **queue) {
  constexpr size_t packet_bytes = 64;
  auto *created = new (std::nothrow) Queue;
  if (created == nullptr) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  created->packets = std::calloc(size, packet_bytes);
  hsa_queue_t &head = created->queue.hsa_queue;
  head.type = type;
  head.size = size;
  head.base_address = created->packets;
  hsa_signal_create(0, 0, nullptr, &head.doorbell_signal);
  *queue = &head;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_queue_destroy(hsa_queue_t *queue) {
  Queue *const destroyed = as_queue(queue);
  hsa_signal_destroy(queue->doorbell_signal);
  std::free(destroyed->packets);
  delete destroyed;
  return HSA_STATUS_SUCCESS;
}

uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue) { return write_index(queue).load(); }
uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue) { return write_index(queue).load(); }
uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue) { return write_index(queue).load(); }
uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t packets) {
  return write_index(queue).fetch_add(packets);
}

} // extern "C"
