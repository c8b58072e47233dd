// kafkajs does the tasks of tests/wire/clients/features.py: each line of stdin is one, and gets a line of stdout with
// its name and what was seen, or the failure. The argument is where the package is.

const fs = require('fs')
const { Kafka, CompressionTypes, AclResourceTypes, AclOperationTypes, AclPermissionTypes, ConfigResourceTypes,
  ResourcePatternTypes, logLevel } = require(process.argv[2])

const TAKES_MS = 30000
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until (what, condition) {
  const deadline = Date.now() + TAKES_MS
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited for ${what}`)
    await sleep(10)
  }
}

function client (task, security = task.options.security, more = {}) {
  const settings = { brokers: [task.bootstrap], clientId: task.name, logLevel: logLevel.NOTHING, ...more }
  if (security && security.ca) settings.ssl = { ca: [fs.readFileSync(security.ca)] }
  if (security && security.mechanism) {
    settings.sasl = {
      mechanism: security.mechanism.toLowerCase(), username: security.user, password: security.password
    }
  }
  return new Kafka(settings)
}

async function withOne (one, use) {
  await one.connect()
  try {
    return await use(one)
  } finally {
    await one.disconnect()
  }
}

const messages = values => values.map(value => ({ value, partition: 0 }))

const consumerOf = task => client(task).consumer({
  groupId: task.group, maxWaitTimeInMs: 50, heartbeatInterval: 100
})

async function read (consumer, task, values, eachBatch) {
  await consumer.subscribe({ topics: [task.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: eachBatch || (async ({ batch, resolveOffset }) => {
      for (const message of batch.messages) {
        values.push(message.value.toString())
        resolveOffset(message.offset)
      }
    })
  })
}

const admin = (task, use) => withOne(client(task).admin(), use)

const operations = {
  produce: task => {
    const { acks, codec, idempotent } = task.options
    const producer = client(task).producer(idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {})
    return withOne(producer, () => producer.send({
      topic: task.topic,
      messages: messages(task.values),
      acks: acks === 'all' ? -1 : Number(acks),
      compression: codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
    })).then(() => ({}))
  },

  transact: async task => {
    const half = task.values.length / 2
    const producer = client(task).producer({
      transactionalId: task.options.transactional_id, idempotent: true, maxInFlightRequests: 1
    })
    await withOne(producer, async () => {
      for (const [values, end] of [[task.values.slice(0, half), 'commit'], [task.values.slice(half), 'abort']]) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: task.topic, messages: messages(values) })
        await transaction[end]()
      }
    })
    return {}
  },

  transform: async task => {
    const producer = client(task).producer({
      transactionalId: task.options.transactional_id, idempotent: true, maxInFlightRequests: 1
    })
    const consumer = consumerOf(task)
    await withOne(producer, () => withOne(consumer, async () => {
      let count = 0
      await read(consumer, task, [], async ({ batch, resolveOffset }) => {
        const transaction = await producer.transaction()
        const values = batch.messages.map(message => message.value.toString())
        await transaction.send({ topic: task.options.target, messages: messages(values) })
        const next = String(Number(batch.lastOffset()) + 1)
        await transaction.sendOffsets({
          consumerGroupId: task.group,
          topics: [{ topic: task.topic, partitions: [{ partition: batch.partition, offset: next }] }]
        })
        await transaction.commit()
        resolveOffset(batch.lastOffset())
        count += values.length
      })
      await until('all records', () => count >= task.values.length)
    }))
    return {}
  },

  assign: async task => {
    const values = []
    const consumer = consumerOf(task) // reads what is committed, if it is not told otherwise
    await withOne(consumer, async () => {
      await read(consumer, task, values)
      await until('all records', () => values.length >= task.options.count)
    })
    return { values }
  },

  times: task => admin(task, async one => {
    const at = async time => {
      const found = await one.fetchTopicOffsetsByTimestamp(task.topic, time)
      return Number(found.find(each => each.partition === 3).offset)
    }
    const range = (await one.fetchTopicOffsets(task.topic)).find(each => each.partition === 3)
    return {
      offset: await at(task.options.time_ms),
      after_all: await at(task.options.later_ms),
      begin: Number(range.low),
      end: Number(range.high)
    }
  }),

  share: async task => {
    const values = []
    const members = [consumerOf(task), consumerOf(task)]
    const shares = [0, 0]
    const ends = {}
    members.forEach((member, at) => {
      member.on(member.events.GROUP_JOIN, event => {
        shares[at] = (event.payload.memberAssignment[task.topic] || []).length
      })
    })
    await Promise.all(members.map(member => member.connect()))
    try {
      await Promise.all(members.map(member => read(member, task, values, async ({ batch, resolveOffset }) => {
        batch.messages.forEach(message => values.push(message.value.toString()))
        resolveOffset(batch.lastOffset())
        ends[batch.partition] = { member, offset: String(Number(batch.lastOffset()) + 1) }
      })))
      await until('two shares', () => shares.every(each => each === 2) && new Set(values).size === task.values.length)
      await sleep(300) // the newcomer reads again what is not committed
      for (const [partition, { member, offset }] of Object.entries(ends)) {
        await member.commitOffsets([{ topic: task.topic, partition: Number(partition), offset }])
      }
    } finally {
      await Promise.all(members.map(member => member.disconnect()))
    }
    return { values, shares }
  },

  topics: task => admin(task, async one => {
    await one.createTopics({
      topics: [{
        topic: task.topic,
        numPartitions: 3,
        replicationFactor: 1,
        configEntries: [{ name: 'retention.ms', value: '86400000' }]
      }]
    })
    const { topics } = await one.fetchTopicMetadata({ topics: [task.topic] })
    await one.deleteTopics({ topics: [task.options.old] })
    return { partitions: topics[0].partitions.length }
  }),

  configs: task => admin(task, async one => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: task.topic }
    const configEntries = [
      { name: 'retention.ms', value: '12345' }, { name: 'cleanup.policy', value: 'compact' }
    ]
    await one.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
    const found = await one.describeConfigs({ includeSynonyms: false, resources: [resource] })
    const entries = found.resources[0].configEntries
    return { 'retention.ms': entries.find(each => each.configName === 'retention.ms').configValue }
  }),

  partitions: task => admin(task, one => one.createPartitions({
    topicPartitions: [{ topic: task.topic, count: 3 }]
  })).then(() => ({})),

  delete_records: task => admin(task, async one => {
    await one.fetchTopicOffsets(task.topic) // it deletes nothing of topics that it has not met
    await one.deleteTopicRecords({ topic: task.topic, partitions: [{ partition: 0, offset: '3' }] })
    return { low_watermark: null }
  }),

  groups: task => admin(task, async one => {
    const listed = await one.listGroups()
    const described = await one.describeGroups([task.group])
    const [{ partitions }] = await one.fetchOffsets({ groupId: task.group, topics: [task.topic] })
    await one.deleteGroups([task.group])
    return {
      is_listed: listed.groups.some(each => each.groupId === task.group),
      state: described.groups[0].state,
      offset: Number(partitions[0].offset)
    }
  }),

  reset: task => admin(task, one => one.setOffsets({
    groupId: task.group, topic: task.topic, partitions: [{ partition: 0, offset: '3' }]
  })).then(() => ({})),

  acls: task => admin(task, async one => {
    const pattern = {
      resourceType: AclResourceTypes.TOPIC,
      resourceName: task.topic,
      resourcePatternType: ResourcePatternTypes.LITERAL
    }
    const read = { operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW }
    const any = { operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY }
    await one.createAcls({ acl: [{ ...pattern, ...read, principal: 'User:new', host: '*' }] })
    const { resources } = await one.describeAcls({ ...pattern, ...any })
    await one.deleteAcls({ filters: [{ ...pattern, ...any, principal: 'User:old' }] })
    return { users: resources.flatMap(each => each.acls.map(acl => acl.principal)).sort() }
  }),

  secure: async task => {
    const producer = client(task).producer()
    await withOne(producer, () => producer.send({ topic: task.topic, messages: messages(task.values) }))
    const values = []
    const consumer = consumerOf(task)
    await withOne(consumer, async () => {
      await read(consumer, task, values)
      await until('all records', () => values.length >= task.values.length)
    })
    const stranger = client(task, task.options.wrong, { retry: { retries: 0 } }).producer()
    const isRefused = await stranger.connect().then(() => false, () => true)
    await stranger.disconnect()
    return { values, is_refused: isRefused }
  }
}

async function answer (task) {
  let found
  try {
    found = { name: task.name, said: await operations[task.operation](task) }
  } catch (error) {
    found = { name: task.name, failure: error.stack || String(error) }
  }
  console.log(JSON.stringify(found))
}

async function main () {
  const tasks = fs.readFileSync(0, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line))
  await Promise.all(tasks.map(answer))
  process.exit(0)
}

main()
